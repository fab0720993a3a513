#include "tools/generation_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/terminal.h"

namespace megalith::tools {

std::string generation_line(const engine::Engine& engine, const std::vector<engine::Request>& requests,
                            const engine::Generation& generation) {
  size_t prompt = 0, made = 0, longest = 0;
  for (const engine::Request& request : requests) prompt += request.prompt.size();
  size_t started = 0;
  for (const std::vector<int>& tokens : generation.tokens) {
    made += tokens.size();
    started += !tokens.empty();
    longest = std::max(longest, tokens.size());
  }
  if (made == 0) return "[ no token was made ]";
  // The first token of each request comes out of its prompt; the weights are read once for all requests.
  const double seconds = (generation.last_token_ms - generation.first_token_ms) / 1000;
  std::string rate = "-", bandwidth;
  if (made > started && seconds > 0) {
    rate = fmt::format("{:.1f}", static_cast<double>(made - started) / seconds);
    // With drafts nobody says which request had how many tokens in one pass.
    const double bytes = static_cast<double>(engine.weight_bytes_per_token()) * static_cast<double>(longest - 1);
    if (generation.accepted == 0) bandwidth = fmt::format(", weights {:.2f} GB/s", bytes / seconds / 1e9);
  }
  if (generation.drafted > 0)
    bandwidth += fmt::format(", {} of {} right in {}", generation.accepted,
                             plural(static_cast<int64_t>(generation.drafted), "draft"),
                             plural(static_cast<int64_t>(generation.draft_steps), "step"));
  return fmt::format("[ Prompt: {:.1f} t/s | Generation: {} t/s ] first token {}{}, {} made on {}",
                     static_cast<double>(prompt) / (generation.first_token_ms / 1000), rate,
                     format_ms(generation.first_token_ms), bandwidth, plural(static_cast<int64_t>(made), "token"),
                     plural(engine.num_workers(), "worker"));
}

}  // namespace megalith::tools
