#include <algorithm>
#include <cmath>
#include <limits>
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

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// The tokens that the mask of request n leaves out are never drawn.
void mask(std::vector<double>& row, loop::Arrays& arrays, int64_t n, int64_t length) {
  const double masked = loop::element(arrays, "mask_lengths", {n});
  MEGALITH_CHECK(masked == static_cast<double>(length), "mask_lengths is {}, but the sequence has {} tokens", masked,
                 length);
  for (size_t v = 0; v < row.size(); ++v) {
    const auto word =
        static_cast<uint32_t>(static_cast<int64_t>(loop::element(arrays, "masks", {n, static_cast<int64_t>(v / 32)})));
    if ((word >> v % 32 & 1) == 0) row[v] = kNever;
  }
}

/// The row of request n with its biases, and with no tokens but those that it may have now. `made`: new tokens before it.
void edit(std::vector<double>& row, loop::Arrays& arrays, int64_t n, int64_t made) {
  const double* i32s = &loop::element(arrays, "sampling_i32", {n, 0});
  const auto vocabulary = static_cast<int64_t>(row.size());
  const auto logit_of = [&](std::vector<double>& of, double token, const char* table) -> double& {
    MEGALITH_CHECK(token >= 0 && token < static_cast<double>(vocabulary), "{} has the token {}, the vocabulary {}",
                   table, token, vocabulary);
    return of[static_cast<size_t>(token)];
  };
  const double num_biases = i32s[batch::kBiases];
  MEGALITH_CHECK(num_biases >= 0 && num_biases <= batch::kMaxBiases, "sampling_i32 has {} biases, at most {} fit",
                 num_biases, batch::kMaxBiases);
  std::vector<double> logits = row;
  if ((static_cast<int>(i32s[batch::kExtras]) & batch::kOnly) != 0) row.assign(row.size(), kNever);
  for (int64_t i = 0; i < static_cast<int64_t>(num_biases); ++i) {
    const double token = loop::element(arrays, "bias_tokens", {n, i});
    logit_of(row, token, "bias_tokens") =
        logit_of(logits, token, "bias_tokens") + loop::element(arrays, "biases", {n, i});
  }
  const auto first_bad = static_cast<int64_t>(num_biases),
             end_of_bad = first_bad + static_cast<int64_t>(i32s[batch::kBadTokens]);
  const auto length = made + static_cast<int64_t>(loop::element(arrays, "requests", {n, batch::kPrompt}));
  for (int64_t i = first_bad; i < end_of_bad; ++i) {
    const auto others = static_cast<int64_t>(loop::element(arrays, "biases", {n, i})) - 1;
    bool is_made = others >= 0 && others <= made;
    for (int64_t k = 1; is_made && k <= others; ++k)
      is_made = loop::element(arrays, "bias_tokens", {n, i - k}) == loop::element(arrays, "history", {n, length - k});
    if (is_made) logit_of(row, loop::element(arrays, "bias_tokens", {n, i}), "bias_tokens") = kNever;
  }
  if (static_cast<double>(made) >= i32s[batch::kMinTokens]) return;
  const auto flags = static_cast<int>(loop::element(arrays, "requests", {n, batch::kFlags}));
  const auto never = [&](double token, const char* table) {
    if (token >= 0) logit_of(row, token, table) = kNever;
  };
  if ((flags & batch::kIgnoreStop) == 0)
    for (const double token : arrays.at("stop_tokens").values) never(token, "stop_tokens");
  for (int64_t i = 0; (flags & batch::kOwnStops) != 0 && i < batch::kMaxOwnStops; ++i)
    never(loop::element(arrays, "own_stops", {n, i}), "own_stops");
}

// The text's tokens made less likely, or more: penalties on one row.
void penalize(std::vector<double>& result, const std::vector<int64_t>& text, int64_t prompt, const Wish& wish) {
  const auto vocabulary = static_cast<int64_t>(result.size());
  std::map<int64_t, int64_t> made;  // every token of the text, with how often it was made
  for (size_t s = 0; s < text.size(); ++s) made[text[s]] += static_cast<int64_t>(s) >= prompt;
  for (const auto& [token, times] : made) {
    MEGALITH_CHECK(token >= 0 && token < vocabulary, "history has the token {}, the vocabulary {}", token, vocabulary);
    double& value = result[static_cast<size_t>(token)];
    if (wish.repetition != 0) value = value > 0 ? value / wish.repetition : value * wish.repetition;
    if (times > 0) value -= wish.presence + wish.frequency * static_cast<double>(times);
  }
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
    const auto is_same = [&](int64_t q) {
      return q >= 0 && q < num_samples && static_cast<int64_t>(loop::element(arrays, "sample_request", {q})) == request;
    };
    const bool is_sampled_each_row = (static_cast<int>(fields[batch::kFlags]) & batch::kPromptLogprobs) != 0;
    auto length = static_cast<int64_t>(fields[is_sampled_each_row ? batch::kDone : batch::kLength]);
    if (is_sampled_each_row)
      for (int64_t q = r + 1; is_same(q); ++q) --length;
    else  // with the drafts that the row stands behind
      for (int64_t q = r - 1; is_same(q); --q) ++length;
    const bool is_known = is_sampled_each_row && static_cast<double>(length) < fields[batch::kLength];
    std::vector<int64_t> text;
    for (int64_t s = 0; penalties && !is_known && s < length; ++s)
      text.push_back(static_cast<int64_t>(loop::element(arrays, "history", {request, s})));
    const auto extras = static_cast<int>(i32s[batch::kExtras]);
    const auto prompt = static_cast<int64_t>(fields[batch::kPrompt]);
    std::vector<double> logits(row, row + vocabulary);
    const bool is_masked = !is_known && (extras & batch::kMasked) != 0;
    const bool has_edits = !is_known && (extras & batch::kEdits) != 0 &&
                           (i32s[batch::kBiases] != 0 || i32s[batch::kBadTokens] != 0 ||
                            static_cast<double>(length - prompt) < i32s[batch::kMinTokens]);
    const bool is_edited = has_edits || is_masked;
    if (has_edits) edit(logits, arrays, request, length - prompt);
    if (is_masked) mask(logits, arrays, request, length);
    if (penalties) penalize(logits, text, prompt, wish);
    double& token = arrays.at("token").values[static_cast<size_t>(r)];
    if (is_known) {
      token = loop::element(arrays, "history", {request, length});
    } else if (wish.temperature <= 0) {
      token = penalties || is_edited
                  ? static_cast<double>(std::max_element(logits.begin(), logits.end()) - logits.begin())
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
        (extras & (batch::kLogprobs | batch::kTop)) != 0 ? log_probability(row, vocabulary, static_cast<int64_t>(token))
                                                         : row[0] - row[0];
    if ((extras & batch::kTop) == 0) continue;
    const int64_t count = std::min<int64_t>(batch::top_tokens_of(static_cast<int>(fields[batch::kFlags])), vocabulary);
    std::vector<int64_t> order(static_cast<size_t>(vocabulary));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t of_rank = order[static_cast<size_t>(i)];
      loop::element(arrays, "top_token", {r, i}) = static_cast<double>(of_rank);
      loop::element(arrays, "top_logprob", {r, i}) = log_probability(row, vocabulary, of_rank);
    }
  }
}

}  // namespace

/// A token per sample row: greedy, or by temperature, top-k, top-p, min-p and the request's seed, after its biases, the
/// tokens that it cannot have yet, its mask, and the penalties of its text so far. Sorting is beyond a loop kernel, so this one only says what it touches; `heap` and `adjusted`
/// are room to work in. A `logprob` that nobody asked for is 0, or NaN if the row's logits are NaN or infinite. `top_token`: the most probable
/// tokens by the logits, as many as the request wants to be told of; of the others nothing is known.
graph::Operator sampling() {
  return operator_("sampling", "token[r] drawn from logits[r] as the request of row r asks")
      .input("logits", {"R", "V"})
      .index("best", {"R"}, "V")
      .index("sample_request", {"R"}, "N")
      .input("requests", {"N", "8"}, DType::i32)
      .input("history", {"N", "S"}, DType::i32)
      .input("sampling_f32", {"N", "8"})
      .input("sampling_i32", {"N", "8"}, DType::i32)
      .input("stop_tokens", {"E"}, DType::i32)
      .input("own_stops", {"N", "16"}, DType::i32)
      .input("bias_tokens", {"N", "300"}, DType::i32)
      .input("biases", {"N", "300"})
      .input("masks", {"N", "M"}, DType::i32)
      .input("mask_lengths", {"N"}, DType::i32)
      .output("token", {"R"}, DType::i32)
      .output("logprob", {"R"})
      .exactly()
      .output("heap", {"R", "V"}, DType::i32)
      .output("adjusted", {"R", "V"})
      .output("top_token", {"R", "20"}, DType::i32)
      .output("top_logprob", {"R", "20"})
      .exactly()
      .loops(R"(
        { [r, v, f, s, q, e, o, b, m, k] : 0 <= r < R and 0 <= v < V and 0 <= f < 8 and 0 <= s < S and 0 <= q < R and 0 <= e < E and 0 <= o < 16 and 0 <= b < 300 and 0 <= m < M and 0 <= k < 20 }
        token[r]   = best[r] + sum(q, sample_request[q]) + sum(v, logits[r, v]) + sum(f, requests[sample_request[r], f] + sampling_f32[sample_request[r], f] + sampling_i32[sample_request[r], f]) + sum(s, history[sample_request[r], s]) + sum(e, stop_tokens[e]) + sum(o, own_stops[sample_request[r], o]) + sum(b, bias_tokens[sample_request[r], b] + biases[sample_request[r], b]) + sum(m, masks[sample_request[r], m]) + mask_lengths[sample_request[r]]
        logprob[r] = sum(v, logits[r, v])
        heap[r, v] = v
        adjusted[r, v] = logits[r, v]
        top_token[r, k] = best[r] + sum(v, logits[r, v]) + requests[sample_request[r], 5] + k
        top_logprob[r, k] = sum(v, logits[r, v])
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
