#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "megalith/base/error.h"
#include "megalith/graph/operator.h"
#include "megalith/kernels/sampling_layout.h"
#include "megalith/loop/interpret.h"
#include "megalith/runtime/batch.h"

namespace megalith::ops {

using graph::operator_;

namespace {

double uniform_from(uint32_t low, uint32_t high, uint32_t counter) {
  uint64_t z = (static_cast<uint64_t>(high) << 32 | low) + 0x9e3779b97f4a7c15ull * (uint64_t{counter} + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
  }
  return std::ldexp(static_cast<double>(z >> 11), -53);
}

struct Wish {
  double temperature, top_p, min_p, repetition, presence, frequency;
  int64_t top_k;
};

// The text's tokens made less likely, or more: penalties on one row.
std::vector<double> penalized(const double* logits, int64_t vocabulary, const std::vector<int64_t>& text,
                              int64_t prompt, const Wish& wish) {
  std::vector<double> result(logits, logits + vocabulary);
  std::map<int64_t, int64_t> made;  // every token of the text, with how often it was made
  for (size_t s = 0; s < text.size(); ++s) made[text[s]] += static_cast<int64_t>(s) >= prompt;
  for (const auto& [token, times] : made) {
    MEGALITH_CHECK(token >= 0 && token < vocabulary, "history has the token {}, the vocabulary {}", token, vocabulary);
    double& value = result[static_cast<size_t>(token)];
    if (wish.repetition != 0) value = value > 0 ? value / wish.repetition : value * wish.repetition;
    if (times > 0) value -= wish.presence + wish.frequency * static_cast<double>(times);
  }
  return result;
}

// The meaning, plainly: sort, keep top-k, keep top-p, keep min-p, draw. Works on one row.
int64_t sample(const std::vector<double>& logits, const Wish& wish, double uniform) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const bool limited = wish.top_k > 0 && wish.top_k < static_cast<int64_t>(logits.size());
  if (limited || wish.top_p < 1)
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
  const auto best = std::max_element(logits.begin(), logits.end());
  auto weight = [&](int64_t v) { return std::exp((logits[static_cast<size_t>(v)] - *best) / wish.temperature); };
  if (limited) order.resize(static_cast<size_t>(wish.top_k));
  double total = 0;
  for (int64_t v : order) total += weight(v);
  if (wish.top_p < 1) {
    double kept = 0;
    size_t n = 0;
    while (n < order.size() && (n == 0 || kept < wish.top_p * total)) kept += weight(order[n++]);
    order.resize(n);
  }
  std::erase_if(order, [&](int64_t v) { return weight(v) < wish.min_p && v != best - logits.begin(); });
  total = 0;
  for (int64_t v : order) total += weight(v);
  double left = uniform * total;
  for (int64_t v : order)
    if ((left -= weight(v)) < 0) return v;
  return best - logits.begin();
}

// By the model's own logits: neither penalties nor temperature change what the model holds likely.
double log_probability(const double* logits, int64_t vocabulary, int64_t token) {
  const double largest = *std::max_element(logits, logits + vocabulary);
  double total = 0;
  for (int64_t v = 0; v < vocabulary; ++v) total += std::exp(logits[v] - largest);
  return logits[token] - largest - std::log(std::max(total, 1.0));  // the largest alone weighs 1
}

void reference(const loop::Binding& binding, loop::Arrays& arrays) {
  const int64_t num_samples = binding.sizes.at("R"), vocabulary = binding.sizes.at("V");
  for (int64_t r = 0; r < num_samples; ++r) {
    const auto request = static_cast<int64_t>(loop::element(arrays, "sample_request", {r}));
    const double* f32s = &loop::element(arrays, "sampling_f32", {request, 0});
    const double* i32s = &loop::element(arrays, "sampling_i32", {request, 0});
    const double* fields = &loop::element(arrays, "requests", {request, 0});
    const Wish wish{f32s[batch::kTemperature],
                    f32s[batch::kTopP],
                    f32s[batch::kMinP],
                    f32s[batch::kRepetitionPenalty],
                    f32s[batch::kPresencePenalty],
                    f32s[batch::kFrequencyPenalty],
                    static_cast<int64_t>(i32s[batch::kTopK])};
    const bool penalties = (wish.repetition != 0 && wish.repetition != 1) || wish.presence != 0 || wish.frequency != 0;
    const double* row = arrays.at("logits").values.data() + r * vocabulary;
    auto length = static_cast<int64_t>(fields[batch::kLength]);  // with the drafts that the row stands behind
    for (int64_t q = r; q > 0 && static_cast<int64_t>(loop::element(arrays, "sample_request", {q - 1})) == request; --q)
      ++length;
    std::vector<int64_t> text;
    for (int64_t s = 0; penalties && s < length; ++s)
      text.push_back(static_cast<int64_t>(loop::element(arrays, "history", {request, s})));
    const std::vector<double> logits =
        penalties ? penalized(row, vocabulary, text, static_cast<int64_t>(fields[batch::kPrompt]), wish)
                  : std::vector<double>(row, row + vocabulary);
    double& token = arrays.at("token").values[static_cast<size_t>(r)];
    if (wish.temperature <= 0) {
      token = penalties ? static_cast<double>(std::max_element(logits.begin(), logits.end()) - logits.begin())
                        : loop::element(arrays, "best", {r});
      MEGALITH_CHECK(token >= 0 && token < static_cast<double>(vocabulary), "best is {}, the vocabulary {}", token,
                     vocabulary);
    } else {
      auto word = [](double value) { return static_cast<uint32_t>(static_cast<int32_t>(value)); };
      const double uniform =
          uniform_from(word(i32s[batch::kSeedLow]), word(i32s[batch::kSeedHigh]), static_cast<uint32_t>(length));
      token = static_cast<double>(sample(logits, wish, uniform));
    }
    arrays.at("logprob").values[static_cast<size_t>(r)] =
        i32s[batch::kLogprobs] != 0 ? log_probability(row, vocabulary, static_cast<int64_t>(token)) : row[0] - row[0];
  }
}

}  // namespace

/// A token per sample row: greedy, or by temperature, top-k, top-p, min-p and the request's seed, after the penalties
/// of its text so far. Sorting is beyond a loop kernel, so this one only says what it touches; `heap` and `adjusted`
/// are room to work in. A `logprob` that nobody asked for is 0, or NaN if the row's logits are NaN or infinite.
graph::Operator sampling() {
  return operator_("sampling", "token[r] drawn from logits[r] as the request of row r asks")
      .input("logits", {"R", "V"})
      .index("best", {"R"}, "V")
      .index("sample_request", {"R"}, "N")
      .input("requests", {"N", "8"}, DType::i32)
      .input("history", {"N", "S"}, DType::i32)
      .input("sampling_f32", {"N", "8"})
      .input("sampling_i32", {"N", "4"}, DType::i32)
      .output("token", {"R"}, DType::i32)
      .output("logprob", {"R"})
      .exactly()
      .output("heap", {"R", "V"}, DType::i32)
      .output("adjusted", {"R", "V"})
      .loops(R"(
        { [r, v, f, p, s, q] : 0 <= r < R and 0 <= v < V and 0 <= f < 8 and 0 <= p < 4 and 0 <= s < S and 0 <= q < R }
        token[r]   = best[r] + sum(q, sample_request[q]) + sum(v, logits[r, v]) + sum(f, requests[sample_request[r], f] + sampling_f32[sample_request[r], f]) + sum(p, sampling_i32[sample_request[r], p]) + sum(s, history[sample_request[r], s])
        logprob[r] = sum(v, logits[r, v])
        heap[r, v] = v
        adjusted[r, v] = logits[r, v]
      )")
      .reference(reference)
      .tasks({"r"})
      .body("cpu", "sampling.h", "sample_rows",
            [](const graph::BodyQuery& q) { return q.dtypes.at("logits") == DType::f32; })
      .body({.target = "cuda",
             .file = "sampling/sampling.cuh",
             .name = "sample_rows_by_block",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return q.dtypes.at("logits") == DType::f32 && q.sizes.at("V") <= sampling::kMaxTokens;
                 },
             .area_bytes = [](const graph::BodyQuery&) { return int64_t{sampling::area_bytes()}; },
             .prefetch = "sampling_ahead"});
}

}  // namespace megalith::ops
