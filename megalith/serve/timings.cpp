#include "megalith/serve/timings.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith::serve {

namespace {

double milliseconds(uint64_t begin_ns, uint64_t end_ns) {
  return begin_ns && end_ns > begin_ns ? static_cast<double>(end_ns - begin_ns) * 1e-6 : 0;
}

double quotient(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

std::string timings_json(const AnswerTimes& times, int64_t prompt_tokens, int64_t cached_tokens, int64_t tokens) {
  const double prompt_ms = milliseconds(times.admitted_ns, times.first_ns);
  const double predicted_ms = milliseconds(times.first_ns, times.last_ns);
  const auto worked = static_cast<double>(prompt_tokens - cached_tokens);
  const auto steps = static_cast<double>(std::max<int64_t>(tokens - 1, 0));
  return fmt::format(R"({{"cache_n":{},"prompt_n":{},"prompt_ms":{},"prompt_per_token_ms":{},"prompt_per_second":{},)"
                     R"("predicted_n":{},"predicted_ms":{},"predicted_per_token_ms":{},"predicted_per_second":{}}})",
                     cached_tokens, prompt_tokens - cached_tokens, prompt_ms, quotient(prompt_ms, worked),
                     quotient(1e3 * worked, prompt_ms), tokens, predicted_ms, quotient(predicted_ms, steps),
                     quotient(1e3 * steps, predicted_ms));
}

}  // namespace megalith::serve
