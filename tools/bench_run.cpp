#include <fmt/format.h>

#include <algorithm>

#include "megalith/engine/machine_limits.h"
#include "megalith/runtime/resident_memory.h"
#include "tools/bench.h"
#include "tools/statistics.h"

namespace megalith::tools {

namespace {

// Any tokens will do, as long as they are not one and the same row of the embedding.
std::vector<int> some_tokens(int64_t first, int64_t count, int64_t vocab_size) {
  std::vector<int> tokens;
  for (int64_t i = first; i < first + count; ++i) tokens.push_back(static_cast<int>((i * 7919 + 13) % vocab_size));
  return tokens;
}

// A test of generation alone makes its first token out of the last one before its depth; that one is not timed.
engine::Request request_of(const BenchTest& test, int64_t number, int64_t vocab_size, bool dummy) {
  const bool generates = test.generate > 0 && !test.is_mixed();
  const int64_t length = generates ? std::max<int64_t>(test.depth, 1) : test.depth + test.prompt;
  engine::Request request;
  request.prompt = some_tokens(number, length, vocab_size);
  request.max_new_tokens = test.is_mixed() ? test.generate : generates ? test.generate + 1 : 1;
  request.ignore_stop_tokens = true;
  if (dummy) request.cached_tokens = generates ? length - 1 : test.depth;
  return request;
}

double bytes_per_token(const engine::Engine& engine, const BenchTest& test) {
  const auto each = static_cast<double>(engine.weight_bytes_per_token());
  // Requests that are worked on together read the weights once; the prompt makes the first of a mixed test's tokens.
  const int64_t steps = test.generate - (test.is_mixed() ? 1 : 0);
  double bytes = each * static_cast<double>(std::max<int64_t>(steps, 0));
  if (test.prompt > 0) {
    // So does a chunk of prompts; the output projection is for the last token of each alone.
    const int64_t chunks = engine.prompt_passes(test.requests * test.prompt);
    const auto head = static_cast<double>(engine.head_bytes());
    bytes += (each - head) * static_cast<double>(chunks) + head;
  }
  return bytes / static_cast<double>(test.tokens());
}

// A multiplication and an addition for each weight; the output projection is for tokens that are made.
double flops_per_token(const engine::Engine& engine, const BenchTest& test) {
  const auto each = static_cast<double>(engine.weights_per_token());
  if (test.prompt == 0) return 2 * each;
  const auto head = static_cast<double>(engine.head_weights()), prompt = static_cast<double>(test.prompt);
  const int64_t made = test.is_mixed() ? test.generate - 1 : 0;  // beside the one that the prompt makes
  const double weights = (each - head) * prompt + head + each * static_cast<double>(made);
  return 2 * weights / static_cast<double>(test.prompt + test.generate);
}

// Weights that were packed or made up are counted by their size, those that lie in mapped files as the pages of files
// that are there. The KV cache is among the rest, as far as somebody wrote to it.
int64_t peak_beyond(const engine::Engine& engine, bool dummy) {
  const runtime::ResidentMemory memory = runtime::resident_memory();
  const int64_t weights = dummy ? engine.weight_bytes() : engine.packed_bytes() + memory.from_files;
  return std::max<int64_t>(0, memory.peak - weights);
}

}  // namespace

std::string BenchTest::name() const {
  std::string name = is_mixed()     ? fmt::format("pp{}+tg{}", prompt, generate)
                     : generate > 0 ? fmt::format("tg{}", generate)
                                    : fmt::format("pp{}", prompt);
  if (requests > 1) name += fmt::format(" x {}", requests);
  return depth > 0 ? fmt::format("{} @ d{}", name, depth) : name;
}

int64_t BenchTest::positions() const {
  if (prompt > 0) return depth + prompt + std::max<int64_t>(generate, 1);
  return std::max<int64_t>(depth, 1) + generate + 1;
}

std::vector<double> BenchResult::tokens_per_second() const {
  std::vector<double> rates;
  for (double s : seconds) rates.push_back(static_cast<double>(test.tokens()) / s);
  return rates;
}

double BenchResult::gigabytes_per_second() const { return mean(tokens_per_second()) * bytes_per_token / 1e9; }

double BenchResult::gflops() const { return mean(tokens_per_second()) * flops_per_token / 1e9; }

double BenchResult::read_share() const { return gigabytes_per_second() / mean(read_gbs); }

std::optional<BenchResult> bench_run(engine::Engine& engine, const BenchTest& test, int repetitions,
                                     const ModelOptions& options, const engine::Sampling& sampling,
                                     const bool& interrupted) {
  const bool dummy = options.dummy();
  std::vector<engine::Request> requests;
  for (int64_t number = 0; number < test.requests; ++number)
    requests.push_back(request_of(test, number, engine.config().vocab_size, dummy));
  for (engine::Request& request : requests) request.sampling = sampling;
  BenchResult result{
      .test = test, .bytes_per_token = bytes_per_token(engine, test), .flops_per_token = flops_per_token(engine, test)};
  for (int repetition = -1; repetition < repetitions; ++repetition) {  // -1 warms up
    runtime::resident_peak_reset();                                    // the buffer that was read is gone
    const engine::Generation generation = engine.generate(requests);
    if (interrupted || generation.cancelled) return std::nullopt;
    result.peak_bytes = std::max(result.peak_bytes, peak_beyond(engine, dummy));
    result.read_gbs.push_back(engine::read_bandwidth_gbs(options.target, engine.num_workers()));
    if (repetition < 0) continue;
    const std::vector<double>& ms = generation.token_ms[0];
    double first = ms.front(), last = ms.back();  // of all requests
    for (const std::vector<double>& other : generation.token_ms) {
      first = std::min(first, other.front());
      last = std::max(last, other.back());
    }
    result.seconds.push_back((test.prompt > 0 ? last : last - first) / 1000);
    if (test.is_mixed())
      for (const std::vector<double>& each : generation.token_ms) result.first_ms.push_back(each.front());
    for (size_t i = 1; i < ms.size(); ++i) result.token_ms.push_back(ms[i] - ms[i - 1]);
  }
  return result;
}

}  // namespace megalith::tools
