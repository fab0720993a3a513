// Sampling by a block: the tokens of kernels/cpu/sampling.h, found by passes of all threads over the logits.
//
// Who is the k-th likeliest, where the share of top-p ends, and which token is drawn are one question: the first token,
// in some order, with which a running sum exceeds a target. It is answered like a look into a dictionary: each pass
// adds up the sums of 256 bins, picks the bin that holds the target, and the next pass looks into that bin alone, until
// it holds so few tokens that each can work out what stands before it.
//
// Weights are whole numbers, in units of 2^-44 of the largest one. Those add up to the same in any order, so that
// threads may add to a bin as they come, and a text has the same bits every time.
#pragma once

#include "megalith/kernels/cpu/gumbel.h"
#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/ring.cuh"
#include "megalith/kernels/sampling_layout.h"

namespace megalith::kernels {

/// A token among others: larger logits come first, of equals the lower token.
struct Place {
  f32 logit;
  i32 token;  // below 0: none

  bool is_before(Place other) const { return logit > other.logit || (logit == other.logit && token < other.token); }
};
inline constexpr Place kNoPlace = {-kInfinity, -1}, kLastPlace = {-kInfinity, 0x7fffffff};

struct SamplingArea {
  static constexpr int kParts = 16, kBinsOfPart = sampling::kBins / kParts;
  u64 sum[sampling::kBins];
  u64 sum_of_part[kParts], sum_of_warp[kWarps], listed_sum[sampling::kMostListed];
  Place listed[sampling::kMostListed], of_warp[kWarps], found;
  u32 count[sampling::kBins], num_listed;
};

inline SamplingArea& sampling_area() { return *reinterpret_cast<SamplingArea*>(shared_area()); }

inline u64 block_total(u64 value) {
  SamplingArea& area = sampling_area();
  value = warp_all(value, Add{});
  if (lane() == 0) area.sum_of_warp[warp()] = value;
  block_sync();
  u64 total = 0;
  for (int w = 0; w < kWarps; ++w) total += area.sum_of_warp[w];
  block_sync();
  return total;
}

/// The first of all threads' places; its token, or 0 if nobody has one of the vocabulary.
inline i32 block_first(Place place, i32 vocabulary) {
  SamplingArea& area = sampling_area();
  for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) {
    const Place other = {from_lane(place.logit, apart), from_lane(place.token, apart)};
    if (other.is_before(place)) place = other;
  }
  if (lane() == 0) area.of_warp[warp()] = place;
  block_sync();
  for (int w = 0; w < kWarps; ++w)
    if (area.of_warp[w].is_before(place)) place = area.of_warp[w];
  block_sync();
  return place.token < vocabulary ? place.token : 0;
}

/// A weight of at most 1 in whole numbers; what is no number weighs nothing.
inline u64 whole_weight(f32 weight) { return weight > 0.0f ? static_cast<u64>(weight * 17592186044416.0f) : 0; }

/// One row of logits, of which one token is drawn. Lies in shared memory, since registers are few: thread 0 makes and
/// changes it, and all threads call all functions.
class RowSampler {
 public:
  /// Behind the area.
  static RowSampler& of_block() { return *reinterpret_cast<RowSampler*>(&sampling_area() + 1); }

  /// `room` has a word for each token.
  RowSampler(const f32* logits, i32 vocabulary, i32 best, f32 temperature, Cuts cuts, double uniform, i32* room)
      : logits_(logits),
        num_(vocabulary),
        best_(best),
        largest_(logits[best]),
        scale_(1.0f / temperature),
        cuts_(cuts),
        uniform_(uniform),
        room_(room) {}

  i32 draw() {
    const bool has_limit = cuts_.top_k > 0 && cuts_.top_k < num_, has_share = cuts_.top_p < 1.0f;
    if (thread() == 0) is_sorted_ = has_limit || has_share;
    block_sync();
#pragma unroll 1
    for (int step = kTopK;; ++step) {  // compiled once for all three
      if ((step == kTopK && !has_limit) || (step == kTopP && !has_share)) continue;
      if (step == kDraw && thread() == 0) least_ = cuts_.min_p;
      const Place found = first_beyond(step);
      if (step == kDraw) return found.token < 0 ? best_ : found.token;
      if (found.token >= 0 && thread() == 0) last_ = found;
      if (step == kTopK && cuts_.top_k <= kMostListed) list_tokens();
    }
  }

 private:
  enum Step { kTopK, kTopP, kDraw };
  // Beyond that a weight is nothing.
  static constexpr f32 kFarthest = 31.0f;
  static constexpr int kAtOnce = 4;                 // loads under way
  static constexpr i32 kMostListed = 8 * kThreads;  // of all tokens, once top-k left no more

  f32 distance(f32 logit) const { return (largest_ - logit) * scale_; }
  bool weighs(f32 logit) const { return distance(logit) < kFarthest; }
  u64 measure(int step, Place at) const {
    if (last_.is_before(at)) return 0;
    if (step == kTopK) return 1;
    const f32 share = exp(-distance(at.logit));
    return share < least_ && at.token != best_ ? 0 : whole_weight(share);
  }
  // A sum exceeds the target with the last token that top-k or top-p keep, or with the one that is drawn.
  u64 target(int step, u64 total) const {
    if (step == kTopK) return static_cast<u64>(cuts_.top_k) - 1;
    const double wanted = (step == kTopP ? static_cast<double>(cuts_.top_p) : uniform_) * static_cast<double>(total);
    u64 whole = wanted > 0 ? static_cast<u64>(wanted) : 0;
    if (step == kTopP && static_cast<double>(whole) >= wanted && whole > 0) --whole;
    return whole;
  }

  // What tokens are sorted into bins by, 8 bits a pass: how far from the largest, then their number; or that alone.
  static u64 code_of(bool by_token, Place at, f32 distance) {
    const u64 token = static_cast<u64>(at.token);
    return by_token ? token : static_cast<u64>(static_cast<u32>(max(distance, 0.0f) * 524288.0f)) << 24 | token;
  }

  template <class Action>
  void each(Action action) const {
#pragma unroll 1
    for (i32 first = thread(); first < num_; first += kAtOnce * kThreads) {
      Place at[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const i32 n = first + i * kThreads;
        at[i].token = n >= num_ ? -1 : is_listed_ ? room_[n] : n;
        at[i].logit = n >= num_ ? 0.0f : logits_[at[i].token];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (at[i].token >= 0 && weighs(at[i].logit)) action(at[i]);
    }
  }

  /// The first token with which the sum exceeds the target; none if all tokens' does not. Larger logits come first, but
  /// if nothing was sorted so far, tokens are drawn in the order of their numbers.
  Place first_beyond(int step) const {
    SamplingArea& area = sampling_area();
    const bool by_token = step == kDraw && !is_sorted_;
    u64 left = 0, begin = 0;  // the target, less what stands before the bin; the digits of the bin
    int shift = by_token ? 16 : 40;
    for (bool is_first = true;; is_first = false, shift -= 8) {
      for (int bin = thread(); bin < sampling::kBins; bin += kThreads) area.sum[bin] = area.count[bin] = 0;
      block_sync();
      each([&](Place at) {
        const u64 code = code_of(by_token, at, distance(at.logit));
        if (code >> (shift + 8) != begin) return;
        const u64 amount = measure(step, at);
        if (amount == 0) return;
        const int bin = static_cast<int>(code >> shift & (sampling::kBins - 1));
        atomic_add(&area.sum[bin], amount);
        atomic_add(&area.count[bin], 1u);
      });
      block_sync();
      constexpr int kParts = SamplingArea::kParts, kBinsOfPart = SamplingArea::kBinsOfPart;
      for (int part = thread(); part < kParts; part += kThreads) {
        u64 sum = 0;
        for (int i = 0; i < kBinsOfPart; ++i) sum += area.sum[part * kBinsOfPart + i];
        area.sum_of_part[part] = sum;
      }
      block_sync();
      if (is_first) {
        u64 total = 0;
        for (int part = 0; part < kParts; ++part) total += area.sum_of_part[part];
        left = target(step, total);
        if (left >= total) return kNoPlace;
      }
      int part = 0;
      for (; part < kParts - 1 && left >= area.sum_of_part[part]; ++part) left -= area.sum_of_part[part];
      int bin = part * kBinsOfPart;
      for (; bin < sampling::kBins - 1 && left >= area.sum[bin]; ++bin) left -= area.sum[bin];
      begin = begin << 8 | static_cast<u64>(bin);
      const u32 count = area.count[bin];
      block_sync();
      if (count <= sampling::kMostListed || shift == 0) break;
    }
    return first_of_bin(step, begin, shift, left);
  }

  Place first_of_bin(int step, u64 begin, int shift, u64 left) const {
    SamplingArea& area = sampling_area();
    const bool by_token = step == kDraw && !is_sorted_;
    if (thread() == 0) {
      area.num_listed = 0;
      area.found = kNoPlace;
    }
    block_sync();
    each([&](Place at) {
      if (code_of(by_token, at, distance(at.logit)) >> shift != begin) return;
      const u64 amount = measure(step, at);
      if (amount == 0) return;
      const u32 place = atomic_add(&area.num_listed, 1u);
      if (place >= sampling::kMostListed) return;  // after an abort, when others write what is read here
      area.listed[place] = at;
      area.listed_sum[place] = amount;
    });
    block_sync();
    const int count = min(static_cast<int>(area.num_listed), sampling::kMostListed);
    for (int i = thread(); i < count; i += kThreads) {
      const Place own = area.listed[i];
      u64 before = 0;
      for (int j = 0; j < count; ++j)
        if (by_token ? area.listed[j].token < own.token : area.listed[j].is_before(own)) before += area.listed_sum[j];
      if (before <= left && left - before < area.listed_sum[i]) area.found = own;
    }
    block_sync();
    return area.found;
  }

  // Few are left, so nobody looks at all tokens again.
  void list_tokens() {
    SamplingArea& area = sampling_area();
    if (thread() == 0) area.num_listed = 0;
    block_sync();
    each([&](Place at) {
      if (!last_.is_before(at)) room_[atomic_add(&area.num_listed, 1u)] = at.token;
    });
    block_sync();
    if (thread() != 0) return;
    num_ = static_cast<i32>(area.num_listed);
    is_listed_ = true;
  }

  const f32* logits_;
  i32 num_;  // of the row, or of the list
  i32 best_;
  f32 largest_, scale_;
  Cuts cuts_;
  double uniform_;
  i32* room_;
  bool is_sorted_ = false, is_listed_ = false;
  Place last_ = kLastPlace;  // those behind it are left out
  f32 least_ = 0;            // and those that weigh less
};
static_assert(sizeof(SamplingArea) + sizeof(RowSampler) <= sampling::area_bytes() && alignof(RowSampler) <= 8);

/// penalize() of kernels/cpu/sampling.h by all threads.
inline i32 penalize_by_block(f32* adjusted, i32* counts, const f32* logits, i32 vocabulary, const i32* text, i32 prompt,
                             i32 length, const f32* f32s) {
  // Whether a token is in the text, and twice how often it was made.
  for (i32 v = thread(); v < vocabulary; v += kThreads) counts[v] = 0;
  block_sync();
  for (i32 s = thread(); s < length; s += kThreads)
    if (s < prompt)
      atomic_or(counts + text[s], 1);
    else
      atomic_add(counts + text[s], 2);
  block_sync();
  Place best = kLastPlace;
  for (i32 v = thread(); v < vocabulary; v += kThreads) {
    const i32 count = counts[v];
    const Place at = {count == 0 ? logits[v] : penalized(logits[v], count / 2, f32s), v};
    adjusted[v] = at.logit;
    if (at.is_before(best)) best = at;
  }
  return block_first(best, vocabulary);
}

inline f32 log_probability_by_block(const f32* logits, i32 vocabulary, i32 best, i32 token) {
  const f32 largest = logits[best];
  u64 total = 0;
  for (i32 v = thread(); v < vocabulary; v += kThreads) total += whole_weight(exp(logits[v] - largest));
  const double sum = static_cast<double>(block_total(total)) * (1.0 / 17592186044416.0);
  return logits[token] - largest - log(static_cast<f32>(sum));
}

/// Row r, of which more is asked than its likeliest token.
template <class Args, class Task>
MEGALITH_SHARED void sample_row_by_block(const Task& task, i64 r) {
  const auto& a = Args::of(task);
  const i32 vocabulary = static_cast<i32>(a.V);
  const i64 request = a.sample_request[r];
  const f32* f32s = a.sampling_f32 + request * batch::kSamplingFloats;
  const i32* i32s = a.sampling_i32 + request * batch::kSamplingInts;
  const f32* logits = a.logits + r * a.V;
  i32* const room = a.heap + r * a.V;
  const i32* fields = a.requests + request * batch::kRequestFields;
  const i32 likeliest = min(max(a.best[r], 0), vocabulary - 1);  // after an abort it may be anything
  i32 token = likeliest;
  if (has_penalties(f32s)) {
    f32* const adjusted = a.adjusted + r * a.V;
    token = penalize_by_block(adjusted, room, logits, vocabulary, a.history + request * a.S, fields[batch::kPrompt],
                              fields[batch::kLength], f32s);
    logits = adjusted;
  }
  if (f32s[batch::kTemperature] > 0.0f) {
    RowSampler& sampler = RowSampler::of_block();
    block_sync();  // nobody looks at the last row's any more
    if (thread() == 0)
      sampler =
          RowSampler(logits, vocabulary, token, f32s[batch::kTemperature],
                     {f32s[batch::kTopP], f32s[batch::kMinP], i32s[batch::kTopK]},
                     uniform_from(static_cast<u32>(i32s[batch::kSeedLow]), static_cast<u32>(i32s[batch::kSeedHigh]),
                                  static_cast<u32>(fields[batch::kLength])),
                     room);
    block_sync();
    token = sampler.draw();
  }
  f32 logprob = 0;
  if (i32s[batch::kLogprobs] != 0) logprob = log_probability_by_block(a.logits + r * a.V, vocabulary, likeliest, token);
  if (thread() == 0) {
    a.token[r] = token;
    a.logprob[r] = logprob;
  }
}

/// The body of the operator `sampling`: one token per sample row.
template <class Args>
inline void sample_rows_by_block(const Args& a) {
#pragma unroll 1
  for (i64 r = a.r_begin; r < a.r_end && r < a.R; ++r) {
    const i64 request = a.sample_request[r];
    const f32* f32s = a.sampling_f32 + request * batch::kSamplingFloats;
    if (f32s[batch::kTemperature] > 0.0f || has_penalties(f32s) ||
        a.sampling_i32[request * batch::kSamplingInts + batch::kLogprobs] != 0) {
      sample_row_by_block<Args>(*a.task, r);
    } else if (thread() == 0) {
      a.token[r] = a.best[r];
      a.logprob[r] = 0;
    }
  }
}

/// The body of the operator `gumbel_argmax` (kernels/cpu/gumbel.h): of equals the lowest token.
template <class Args>
inline void gumbel_argmax_by_block(const Args& a) {
  for (i64 r = a.r_begin; r < a.r_end && r < a.R; ++r) {
    const GumbelNoise noise(a, r);
    Place best = kLastPlace;
    for (i32 v = thread(); v < static_cast<i32>(a.V); v += kThreads)
      if (const Place at = {to_f32(a.logits[r * a.V + v]) + noise(v), v}; at.is_before(best)) best = at;
    const i32 token = block_first(best, static_cast<i32>(a.V));
    if (thread() == 0) a.token[r] = token;
  }
}

}  // namespace megalith::kernels
