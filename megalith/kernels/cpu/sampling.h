// Sampling: from a row of logits to a token. Biases and tokens that cannot be drawn, the mask of a grammar, then penalties,
// then temperature, then top-k, top-p and min-p, in the order of vLLM and of Hugging Face's transformers; repetition counts
// the prompt too, presence and frequency do not, as in vLLM. The random
// number depends on the request's seed and on how long its text is, so a text is the same however it is batched and on
// however many workers it is made. Temperature 0 takes the largest logit.
//
// Candidates are popped from a heap in descending order (of equals the lower token first), so a row costs O(V) plus
// O(log V) per candidate that top-k and top-p let through, not a full sort.
#pragma once

#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/prelude.h"
#include "megalith/kernels/cpu/stops.h"
#include "megalith/kernels/known_tokens.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/mailbox.h"

namespace megalith::kernels {

/// Uniform in [0, 1) from a seed and a counter: two rounds of the SplitMix64 finaliser
/// (https://doi.org/10.1145/2714064.2660195).
inline double uniform_from(u32 seed_low, u32 seed_high, u32 counter) {
  u64 z = (static_cast<u64>(seed_high) << 32 | seed_low) + 0x9e3779b97f4a7c15ull * (static_cast<u64>(counter) + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * (1.0 / 9007199254740992.0);
}

struct Candidates {
  const float* logits;
  i32* heap;
  i32 size;

  bool before(i32 a, i32 b) const { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); }

  void sift_down(i32 at) {
    const i32 moving = heap[at];
    for (;;) {
      i32 child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && before(heap[child + 1], heap[child])) ++child;
      if (!before(heap[child], moving)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = moving;
  }

  void make(i32 vocabulary) {
    size = vocabulary;
    for (i32 v = 0; v < vocabulary; ++v) heap[v] = v;
    for (i32 at = vocabulary / 2 - 1; at >= 0; --at) sift_down(at);
  }

  // The best one left; it moves to the end of the array, so the popped ones stand there in reverse order.
  i32 pop() {
    const i32 best = heap[0];
    heap[0] = heap[--size];
    heap[size] = best;
    if (size > 0) sift_down(0);
    return best;
  }
};

/// What a request asks for, beside its temperature.
struct Cuts {
  float top_p, min_p;
  i32 top_k;
};

inline i32 sample_row(const float* logits, i32* heap, i32 vocabulary, i32 best, float temperature, Cuts cuts,
                      double uniform) {
  const float largest = logits[best];
  const float scale = 1.0f / temperature;
  const double least = static_cast<double>(cuts.min_p);  // the largest weight is 1
  auto weight = [&](i32 v) { return static_cast<double>(exp((logits[v] - largest) * scale)); };
  const i32 limit = cuts.top_k > 0 && cuts.top_k < vocabulary ? cuts.top_k : vocabulary;

  if (limit == vocabulary && cuts.top_p >= 1.0f) {
    auto kept_weight = [&](i32 v) {
      const double w = weight(v);
      return w < least ? 0.0 : w;
    };
    double total = 0;
    for (i32 v = 0; v < vocabulary; ++v) total += kept_weight(v);
    double left = uniform * total;
    for (i32 v = 0; v < vocabulary; ++v)
      if ((left -= kept_weight(v)) < 0) return v;
    return best;
  }

  Candidates candidates{logits, heap, 0};
  candidates.make(vocabulary);
  double total = 0;  // over what top-k lets through: top-p is a share of that
  if (limit == vocabulary) {
    for (i32 v = 0; v < vocabulary; ++v) total += weight(v);
  } else {
    for (i32 i = 0; i < limit; ++i) total += weight(candidates.pop());
  }
  const double wanted = cuts.top_p < 1.0f ? cuts.top_p * total : total;
  double kept = 0;
  i32 num_kept = 0;
  while (num_kept < limit && (num_kept == 0 || kept < wanted)) {
    const i32 v = limit == vocabulary ? candidates.pop() : heap[vocabulary - 1 - num_kept];
    const double w = weight(v);
    if (num_kept > 0 && w < least) break;
    kept += w;
    ++num_kept;
  }
  double left = uniform * kept;
  for (i32 i = 0; i < num_kept; ++i)
    if ((left -= weight(heap[vocabulary - 1 - i])) < 0) return heap[vocabulary - 1 - i];
  return best;
}

inline bool has_penalties(const float* f32s) {
  const float repetition = f32s[batch::kRepetitionPenalty];
  return (repetition != 0.0f && repetition != 1.0f) || f32s[batch::kPresencePenalty] != 0.0f ||
         f32s[batch::kFrequencyPenalty] != 0.0f;
}

/// A logit of a token that is in the text, and was made so many times.
inline float penalized(float logit, i32 times, const float* f32s) {
  const float repetition = f32s[batch::kRepetitionPenalty];
  if (repetition != 0.0f) logit = logit > 0.0f ? logit / repetition : logit * repetition;
  if (times > 0) logit -= f32s[batch::kPresencePenalty] + f32s[batch::kFrequencyPenalty] * static_cast<float>(times);
  return logit;
}

/// The logit of a token that cannot be drawn.
inline constexpr float kNever = -kInfinity;

/// Whether a request that has `length` tokens has yet to make others before one may end it.
inline bool is_below_min_tokens(const i32* i32s, const i32* fields, i32 length) {
  return length - fields[batch::kPrompt] < i32s[batch::kMinTokens];
}

/// Whether the request's tokens are those of a mask, which the host writes for each of them.
inline bool is_masked(const i32* i32s) { return (i32s[batch::kExtras] & batch::kMasked) != 0; }

/// Whether edit() changes logits of a request that has `length` tokens.
inline bool has_edits(const i32* i32s, const i32* fields, i32 length) {
  const bool has_others =
      (i32s[batch::kExtras] & batch::kEdits) != 0 &&
      (i32s[batch::kBiases] != 0 || i32s[batch::kBadTokens] != 0 || is_below_min_tokens(i32s, fields, length));
  return has_others || is_masked(i32s);
}

/// Whether place `place` of a request's biases has the last token of a bad word whose other tokens are the last ones that it has
/// made. It has `length` tokens, of which there is room for as many.
template <class Args>
inline bool ends_bad_word(const Args& a, i64 request, i32 place, i32 length) {
  const i32 others = static_cast<i32>(a.biases[request * batch::kMaxBiases + place]) - 1;  // -1: it ends none
  const i32* const token = a.bias_tokens + request * batch::kMaxBiases + place;
  const i32 made = length - a.requests[request * batch::kRequestFields + batch::kPrompt];
  if (others < 0 || others > place || others > made || others > length) return false;
  const i32* const end = a.history + request * a.S + length;
  for (i32 i = 1; i <= others; ++i)
    if (token[-i] != end[-i]) return false;
  return true;
}

/// Whether the mask of a request for its token behind `length` others is there; it waits for it. Not after an abort.
template <class Args>
inline bool wait_for_mask(const Args& a, i64 request, i32 length) {
  return runtime::mask_wait(reinterpret_cast<const u32*>(a.mask_lengths) + request, static_cast<u32>(length), a.abort);
}
/// Whether the mask has a token.
template <class Args>
inline bool mask_allows(const Args& a, i64 request, i32 token) {
  return (static_cast<u32>(a.masks[request * a.M + token / 32]) >> token % 32 & 1) != 0;
}

/// `adjusted` = logits with the biases of the request, and kNever for tokens that it cannot have. False if one of them is
/// none of the vocabulary, or after an abort.
template <class Args>
inline bool edit(float* adjusted, const Args& a, i64 request, const float* logits, i32 length) {
  using Checks = typename Args::Checks;
  const i32* const i32s = a.sampling_i32 + request * batch::kSamplingInts;
  const i32* const fields = a.requests + request * batch::kRequestFields;
  const i32* const tokens = a.bias_tokens + request * batch::kMaxBiases;
  const float* const biases = a.biases + request * batch::kMaxBiases;
  const bool has_biases = (i32s[batch::kExtras] & batch::kEdits) != 0;
  const i32 num_biases = has_biases ? i32s[batch::kBiases] : 0;
  if (!is_inside(a.faults, num_biases, batch::kMaxBiases + 1, Checks::sampling_i32)) return false;
  const bool is_only = (i32s[batch::kExtras] & batch::kOnly) != 0;
  for (i64 v = 0; v < a.V; ++v) adjusted[v] = is_only ? kNever : logits[v];
  for (i32 i = 0; i < num_biases; ++i) {
    if (!is_inside(a.faults, tokens[i], a.V, Checks::bias_tokens)) return false;
    adjusted[tokens[i]] = logits[tokens[i]] + biases[i];
  }
  const i32 num_bad = has_biases ? i32s[batch::kBadTokens] : 0;
  if (!is_inside(a.faults, num_bad, batch::kMaxBiases + 1 - num_biases, Checks::sampling_i32) ||
      !is_inside(a.faults, length, a.S + 1, Checks::requests))
    return false;
  for (i32 i = num_biases; i < num_biases + num_bad; ++i) {
    if (!ends_bad_word(a, request, i, length)) continue;
    if (!is_inside(a.faults, tokens[i], a.V, Checks::bias_tokens)) return false;
    adjusted[tokens[i]] = kNever;
  }
  const StopPlaces places = stop_places(a, fields);
  for (i64 place = places.begin; place < places.end && has_biases && is_below_min_tokens(i32s, fields, length);
       ++place) {
    const i32 token = stop_token_at(a, request, place);
    if (token < 0) continue;
    if (!is_inside(a.faults, token, a.V, place < a.E ? Checks::stop_tokens : Checks::own_stops)) return false;
    adjusted[token] = kNever;
  }
  if (!is_masked(i32s)) return true;
  if (!wait_for_mask(a, request, length)) return false;
  for (i32 v = 0; v < a.V; ++v)
    if (!mask_allows(a, request, v)) adjusted[v] = kNever;
  return true;
}

/// Puts the penalties of the text so far on `adjusted`; the index of the largest of them. `counts` is room for a number
/// per token, of which only those of the text are used.
inline i32 penalize(float* adjusted, i32* counts, i32 vocabulary, const i32* text, i32 prompt, i32 length,
                    const float* f32s) {
  constexpr i32 kDone = -1;
  for (i32 s = 0; s < length; ++s) counts[text[s]] = 0;
  for (i32 s = prompt; s < length; ++s) ++counts[text[s]];
  for (i32 s = 0; s < length; ++s) {
    const i32 v = text[s], times = counts[v];
    if (times == kDone) continue;
    counts[v] = kDone;
    adjusted[v] = penalized(adjusted[v], times, f32s);
  }
  i32 best = 0;
  for (i32 v = 1; v < vocabulary; ++v)
    if (adjusted[v] > adjusted[best]) best = v;
  return best;
}

/// A row's tokens by the model's own logits: neither penalties nor temperature change what the model holds likely.
struct LogProbabilities {
  const float* logits;
  float largest, log_total;

  /// The logarithm of a token's probability.
  float of(i32 token) const { return logits[token] - largest - log_total; }
};
inline LogProbabilities log_probabilities(const float* logits, i32 vocabulary, i32 best) {
  const float largest = logits[best];
  double total = 0;
  for (i32 v = 0; v < vocabulary; ++v) total += static_cast<double>(exp(logits[v] - largest));
  return {logits, largest, log(static_cast<float>(total))};
}

/// How many top tokens a request is told of; a vocabulary may have fewer tokens than it asks for.
template <class Args>
inline i32 top_tokens_wanted(const Args& a, i64 request) {
  const i32 count = batch::top_tokens_of(a.requests[request * batch::kRequestFields + batch::kFlags]);
  return count < a.V ? count : static_cast<i32>(a.V);
}
/// The most probable tokens, of equals the lower one first. `heap` is room for a number per token.
template <class Args>
inline void list_top_tokens(const Args& a, i64 r, i32 count, i32* heap, const LogProbabilities& all) {
  Candidates candidates{all.logits, heap, 0};
  candidates.make(static_cast<i32>(a.V));
  for (i32 i = 0; i < count; ++i) {
    const i32 token = candidates.pop();
    a.top_token[r * batch::kMaxTop + i] = token;
    a.top_logprob[r * batch::kMaxTop + i] = all.of(token);
  }
}

/// 0, or NaN if the row's logits mean nothing. What makes them NaN or infinite is the row that the head multiplies, which
/// all of them share: the first one stands for all.
inline float soundness(const float* logits) { return logits[0] - logits[0]; }

/// Tokens of the text that sample r stands behind: those that are known, and drafts, behind each of which one is sampled.
template <class Args>
inline i32 sampled_length(const Args& a, i64 r, const i32* fields) {
  if (is_sampled_each_row(fields)) return length_behind_row(a, r, a.R, fields);
  const i32 request = a.sample_request[r];
  i32 length = fields[batch::kLength];
  for (; r > 0 && a.sample_request[r - 1] == request; --r) ++length;
  return length;
}

/// Whether the tokens of request `request` so far are those of the vocabulary, and as many as it says.
template <class Args>
inline bool is_sound_text(const Args& a, i64 request, i64 length) {
  using Checks = typename Args::Checks;
  const i32* const fields = a.requests + request * batch::kRequestFields;
  if (!is_inside(a.faults, length, a.S + 1, Checks::requests) ||
      !is_inside(a.faults, fields[batch::kPrompt], length + 1, Checks::requests))
    return false;
  for (i64 s = 0; s < length; ++s)
    if (!is_inside(a.faults, a.history[request * a.S + s], a.V, Checks::history)) return false;
  return true;
}

/// The body of the operator `sampling`: one token per sample row.
template <class Args>
inline void sample_rows(const Args& a) {
  using Checks = typename Args::Checks;
  const i32 vocabulary = static_cast<i32>(a.V);
  for (i64 r = a.r_begin; r < a.r_end && r < a.R; ++r) {
    const i64 request = a.sample_request[r];
    if (!is_inside(a.faults, request, a.N, Checks::sample_request) ||
        !is_inside(a.faults, a.best[r], a.V, Checks::best))
      return;
    const i32* fields = a.requests + request * batch::kRequestFields;
    const float* f32s = a.sampling_f32 + request * batch::kSamplingFloats;
    const i32* i32s = a.sampling_i32 + request * batch::kSamplingInts;
    const float* logits = a.logits + r * a.V;
    i32* const heap = a.heap + r * a.V;
    i32 best = a.best[r];
    const i32 length = sampled_length(a, r, fields);
    const bool is_drawn = !is_known(fields, length);
    const bool is_edited = is_drawn && has_edits(i32s, fields, length), is_penalized = is_drawn && has_penalties(f32s);
    if (is_edited || is_penalized) {
      float* const adjusted = a.adjusted + r * a.V;
      if (is_penalized && !is_sound_text(a, request, length)) return;
      if (!is_edited)
        for (i32 v = 0; v < vocabulary; ++v) adjusted[v] = logits[v];
      else if (!edit(adjusted, a, request, logits, length))
        return;
      best = penalize(adjusted, heap, vocabulary, a.history + request * a.S, fields[batch::kPrompt],
                      is_penalized ? length : 0, f32s);
      logits = adjusted;
    }
    if (!is_drawn) {
      if (!is_inside(a.faults, length, a.S, Checks::requests)) return;
      a.token[r] = a.history[request * a.S + length];
      if (!is_inside(a.faults, a.token[r], a.V, Checks::history)) return;
    } else if (f32s[batch::kTemperature] <= 0.0f) {
      a.token[r] = best;
    } else {
      const double uniform = uniform_from(static_cast<u32>(i32s[batch::kSeedLow]),
                                          static_cast<u32>(i32s[batch::kSeedHigh]), static_cast<u32>(length));
      a.token[r] = sample_row(logits, heap, vocabulary, best, f32s[batch::kTemperature],
                              {f32s[batch::kTopP], f32s[batch::kMinP], i32s[batch::kTopK]}, uniform);
    }
    const float* const own = a.logits + r * a.V;
    if ((i32s[batch::kExtras] & (batch::kLogprobs | batch::kTop)) == 0) {
      a.logprob[r] = soundness(own);
      continue;
    }
    const LogProbabilities all = log_probabilities(own, vocabulary, a.best[r]);
    a.logprob[r] = all.of(a.token[r]);
    if ((i32s[batch::kExtras] & batch::kTop) != 0) list_top_tokens(a, r, top_tokens_wanted(a, request), heap, all);
  }
}

}  // namespace megalith::kernels
