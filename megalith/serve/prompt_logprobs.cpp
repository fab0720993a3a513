#include "megalith/serve/prompt_logprobs.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace megalith::serve {

float finite_logprob(float logprob) {
  constexpr float kLeast = -9999;
  return std::isfinite(logprob) ? logprob : kLeast;
}

int64_t count_characters(const std::string& bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// A token that is not in the text, such as one that the tokenizer puts in front, or only without its space, as one that some
// tokenizers put before the first word, takes no more of the text than what is there.
std::vector<TokenLogprob> echoed_logprobs(const ServedModel& model, const std::string& echo,
                                          const std::vector<int>& prompt,
                                          const std::vector<engine::PromptLogprob>& told, int count) {
  std::vector<TokenLogprob> all;
  std::string_view rest = echo;
  int64_t characters = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    TokenLogprob one{model.token_bytes(prompt[i]), std::nullopt, characters};
    std::string_view bytes = one.bytes;
    if (!rest.starts_with(bytes) && bytes.starts_with(' ')) bytes.remove_prefix(1);
    if (rest.starts_with(bytes)) {
      characters += count_characters(std::string(bytes));
      rest.remove_prefix(bytes.size());
    }
    if (i > 0 && i <= told.size()) {
      one.logprob = finite_logprob(told[i - 1].logprob);
      for (const engine::TopToken& top : engine::top_tokens_asked(told[i - 1].top, count))
        one.top.push_back({model.token_bytes(top.token), finite_logprob(top.logprob)});
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<std::vector<PromptChoice>> prompt_choices(const ServedModel& model, const std::vector<int>& prompt,
                                                      const std::vector<engine::PromptLogprob>& told, int count) {
  std::vector<std::vector<PromptChoice>> all(prompt.size());
  for (size_t i = 1; i < prompt.size() && i <= told.size(); ++i) {
    const std::vector<engine::TopToken>& top = told[i - 1].top;
    const auto choice = [&](int token, float logprob) {
      const auto place = std::ranges::find(top, token, &engine::TopToken::token);
      const auto rank = static_cast<size_t>(place - top.begin()) + 1;
      return PromptChoice{token, model.token_bytes(token), finite_logprob(logprob),
                          place == top.end() ? std::nullopt : std::optional(rank)};
    };
    all[i].push_back(choice(prompt[i], told[i - 1].logprob));
    for (const engine::TopToken& one : engine::top_tokens_asked(top, count))
      if (one.token != prompt[i]) all[i].push_back(choice(one.token, one.logprob));
  }
  return all;
}

}  // namespace megalith::serve
