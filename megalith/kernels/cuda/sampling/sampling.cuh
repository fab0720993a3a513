// Sampling by a block: for each row the token that kernels/cpu/sampling.h would take, with biases and penalties, and how
// likely it was.
#pragma once

#include "megalith/kernels/cpu/gumbel.h"
#include "megalith/kernels/cuda/sampling/row_sampler.cuh"

namespace megalith::kernels {

/// The tokens that the mask leaves out are never drawn. It lies in the host's memory, so a word of it is asked for once, and many
/// of them together; one that is not there yet holds up this block alone. After an abort it may be anything.
template <class Args, class Task>
MEGALITH_SHARED void mask_by_block(f32* adjusted, const Task& task, i64 request, i32 length) {
  const auto& a = Args::of(task);
  const i32 vocabulary = static_cast<i32>(a.V), words = static_cast<i32>(a.M);
  constexpr int kMaskBits = 32;  // of a word
  if (thread() == 0) wait_for_mask(a, request, length);
  block_sync();
  // A lane asks for a word, and all of them write what stands in it.
#pragma unroll 1
  for (i32 first = warp() * kWarpLanes; first < words; first += kThreads) {
    const u32 of_lane = first + lane() < words ? static_cast<u32>(a.masks[request * a.M + first + lane()]) : 0;
#pragma unroll 1
    for (int i = 0; i < kWarpLanes; ++i) {
      const u32 allowed = __shfl_sync(0xffffffffu, of_lane, i);
      for (int bit = lane(); bit < kMaskBits; bit += kWarpLanes)
        if (const i32 v = (first + i) * kMaskBits + bit; v < vocabulary && (allowed >> bit & 1) == 0)
          adjusted[v] = kNever;
    }
  }
  block_sync();
}

/// edit() of kernels/cpu/sampling.h by all threads: a token's biases are its own, and no token that ends the request is
/// left one.
template <class Args, class Task>
MEGALITH_SHARED void edit_by_block(f32* adjusted, const Task& task, i64 request, const f32* logits, i32 length) {
  const auto& a = Args::of(task);
  const i32* const i32s = a.sampling_i32 + request * batch::kSamplingInts;
  const i32* const fields = a.requests + request * batch::kRequestFields;
  const i32 vocabulary = static_cast<i32>(a.V);
  const bool is_only = (i32s[batch::kExtras] & batch::kOnly) != 0;
  each_of(
      vocabulary, thread(), kThreads, [&](i32 v) { return logits[v]; },
      [&](i32 v, f32 logit) { adjusted[v] = is_only ? kNever : logit; });
  block_sync();
  const bool has_biases = (i32s[batch::kExtras] & batch::kEdits) != 0;
  const i32 num_biases =
      has_biases ? inside_32(a.faults, i32s[batch::kBiases], batch::kMaxBiases + 1, Args::Checks::sampling_i32) : 0;
#pragma unroll 1
  for (i32 i = thread(); i < num_biases; i += kThreads) {
    const i64 at = request * batch::kMaxBiases + i;
    const i32 token = inside_32(a.faults, a.bias_tokens[at], vocabulary, Args::Checks::bias_tokens);
    adjusted[token] = logits[token] + a.biases[at];
  }
  block_sync();
  const i32 num_bad = !has_biases ? 0
                                  : inside_32(a.faults, i32s[batch::kBadTokens], batch::kMaxBiases + 1 - num_biases,
                                              Args::Checks::sampling_i32);
#pragma unroll 1
  for (i32 i = num_biases + thread(); i < num_biases + num_bad; i += kThreads)
    if (ends_bad_word(a, request, i, length))
      adjusted[inside_32(a.faults, a.bias_tokens[request * batch::kMaxBiases + i], vocabulary,
                         Args::Checks::bias_tokens)] = kNever;
  block_sync();
  if (has_biases && is_below_min_tokens(i32s, fields, length)) {
    const StopPlaces places = stop_places(a, fields);
#pragma unroll 1
    for (i64 place = places.begin + thread(); place < places.end; place += kThreads) {
      const i32 token = stop_token_at(a, request, place);
      if (token < 0) continue;
      const u32 check = place < a.E ? Args::Checks::stop_tokens : Args::Checks::own_stops;
      adjusted[inside_32(a.faults, token, vocabulary, check)] = kNever;
    }
    block_sync();
  }
  if (is_masked(i32s)) mask_by_block<Args>(adjusted, task, request, length);
}

/// penalize() of kernels/cpu/sampling.h by all threads, of logits that may be `adjusted` already.
/// `token(s)`: number s of the text.
template <class Token>
inline i32 penalize_by_block(f32* adjusted, i32* counts, const f32* logits, i32 vocabulary, Token token, i32 prompt,
                             i32 length, const f32* f32s) {
  // Whether a token is in the text, and twice how often it was made.
  for (i32 v = thread(); v < vocabulary; v += kThreads) counts[v] = 0;
  block_sync();
#pragma unroll 1
  for (i32 s = thread(); s < length; s += kThreads)
    if (s < prompt)
      atomic_or(counts + token(s), 1);
    else
      atomic_add(counts + token(s), 2);
  block_sync();
  struct Counted {
    f32 logit;
    i32 count;
  };
  Place best = kLastPlace;
  each_of(
      vocabulary, thread(), kThreads,
      [&](i32 v) {
        return Counted{logits[v], counts[v]};
      },
      [&](i32 v, Counted loaded) {
        const f32 logit = loaded.count == 0 ? loaded.logit : penalized(loaded.logit, loaded.count / 2, f32s);
        adjusted[v] = logit;
        if (const Place at = {logit, v}; at.is_before(best)) best = at;
      });
  return block_first(best, vocabulary);
}

MEGALITH_SHARED inline LogProbabilities log_probabilities_by_block(const f32* logits, i32 vocabulary, i32 best) {
  const f32 largest = logits[best];
  u64 total = 0;
  each_of(
      vocabulary, thread(), kThreads, [&](i32 v) { return logits[v]; },
      [&](i32, f32 logit) {
        const f32 share = exp(logit - largest);
        total += share > 0.0f ? whole_weight(share, kWholeBits) : 0;  // what is no number weighs nothing
      });
  const double sum = static_cast<double>(block_whole(total, Add{})) * (1.0 / 17592186044416.0);
  return {logits, largest, log(static_cast<f32>(sum))};
}

/// list_top_tokens() of kernels/cpu/sampling.h by all threads: a look at all tokens for each, which few ask for.
template <class Args, class Task>
MEGALITH_SHARED void list_top_tokens_by_block(const Task& task, i64 r, i32 count, LogProbabilities all) {
  const auto& a = Args::of(task);
  const i32 vocabulary = static_cast<i32>(a.V);
  Place last = {kInfinity, -1};
#pragma unroll 1
  for (i32 i = 0; i < count; ++i) {
    Place best = kLastPlace;
    each_of(
        vocabulary, thread(), kThreads, [&](i32 v) { return all.logits[v]; },
        [&](i32 v, f32 logit) {
          if (const Place at = {logit, v}; last.is_before(at) && at.is_before(best)) best = at;
        });
    const i32 token = block_first(best, vocabulary);
    last = {all.logits[token], token};
    if (thread() != 0) continue;
    a.top_token[r * batch::kMaxTop + i] = token;
    a.top_logprob[r * batch::kMaxTop + i] = all.of(token);
  }
}

/// Whether a request wants nothing but the top-1 token. All of them are asked for together, a request a lane, since
/// whose row it is stands in memory, too. By all lanes of a warp.
template <class Args>
inline bool wants_argmax(const Args& a, i64 request) {
  constexpr i32 N = static_cast<i32>(Args::N);
  bool wants = false;
#pragma unroll
  for (i32 first = 0; first < N; first += kWarpLanes) {
    const i32 n = min(first + lane(), N - 1);
    f32 f32s[batch::kSamplingFloats];
#pragma unroll
    for (i32 i = 0; i < batch::kSamplingFloats; ++i) f32s[i] = a.sampling_f32[n * batch::kSamplingFloats + i];
    const bool has_extras = a.sampling_i32[n * batch::kSamplingInts + batch::kExtras] != 0;
    const u32 of_lanes =
        __ballot_sync(0xffffffffu, f32s[batch::kTemperature] <= 0.0f && !has_penalties(f32s) && !has_extras);
    if (request / kWarpLanes * kWarpLanes == first) wants = (of_lanes >> request % kWarpLanes & 1) != 0;
  }
  return wants;
}

template <class Args>
inline i32 argmax_token(const Args& a, i64 r) {
  return inside_32(a.faults, a.best[r], static_cast<i32>(a.V), Args::Checks::best);
}
/// Whose row it is.
template <class Args>
inline i64 request_of_sample(const Args& a, i64 r) {
  return inside_32(a.faults, a.sample_request[r], static_cast<i32>(a.N), Args::Checks::sample_request);
}

/// A token that is asked for otherwise than as the top-1 token, or that is known.
template <class Args, class Task>
inline i32 drawn_token(const Task& task, i64 r) {
  const auto& a = Args::of(task);
  const i32 vocabulary = static_cast<i32>(a.V);
  const i64 request = request_of_sample(a, r);
  const f32* f32s = a.sampling_f32 + request * batch::kSamplingFloats;
  const i32* i32s = a.sampling_i32 + request * batch::kSamplingInts;
  const f32* logits = a.logits + r * a.V;
  i32* const room = a.heap + r * a.V;
  const i32* fields = a.requests + request * batch::kRequestFields;
  i32 token = argmax_token(a, r);
  const i32 length = sampled_length(a, r, fields);
  if (is_known(fields, length)) {
    const i32 place = inside_32(a.faults, length, static_cast<i32>(a.S), Args::Checks::requests);
    return inside_32(a.faults, a.history[request * a.S + place], vocabulary, Args::Checks::history);
  }
  const bool is_edited = has_edits(i32s, fields, length), is_penalized = has_penalties(f32s);
  if (is_edited || is_penalized) {
    f32* const adjusted = a.adjusted + r * a.V;
    const i32 sound_length = inside_32(a.faults, length, static_cast<i32>(a.S) + 1, Args::Checks::requests);
    if (is_edited) edit_by_block<Args>(adjusted, task, request, logits, sound_length);
    token = penalize_by_block(
        adjusted, room, is_edited ? adjusted : logits, vocabulary,
        [&](i32 s) { return inside_32(a.faults, a.history[request * a.S + s], vocabulary, Args::Checks::history); },
        fields[batch::kPrompt], is_penalized ? sound_length : 0, f32s);
    logits = adjusted;
  }
  if (f32s[batch::kTemperature] <= 0.0f) return token;
  RowSampler& sampler = RowSampler::of_block();
  block_sync();  // nobody looks at the last row's any more
  if (thread() == 0)
    sampler = RowSampler(logits, vocabulary, token, f32s[batch::kTemperature],
                         {f32s[batch::kTopP], f32s[batch::kMinP], i32s[batch::kTopK]},
                         uniform_from(static_cast<u32>(i32s[batch::kSeedLow]), static_cast<u32>(i32s[batch::kSeedHigh]),
                                      static_cast<u32>(length)),
                         room);
  block_sync();
  return sampler.draw();
}

/// Operands are looked up again after each part, or they would lie in local memory while registers are needed.
template <class Args, class Task>
MEGALITH_SHARED void sample_row_by_block(const Task& task, i64 r) {
  i32 token = -1;
  f32 logprob = 0;
  i32 extras = 0;
  {
    // Mostly it is the top-1 token: what says so is asked for together.
    const auto& a = Args::of(task);
    const i64 request = request_of_sample(a, r);
    const i32 top = argmax_token(a, r);
    logprob = soundness(a.logits + r * a.V);
    if (wants_argmax(a, request))
      token = top;
    else
      extras = a.sampling_i32[request * batch::kSamplingInts + batch::kExtras] & (batch::kLogprobs | batch::kTop);
  }
  if (token < 0) token = drawn_token<Args>(task, r);
  if (extras != 0) {
    const auto& a = Args::of(task);
    const LogProbabilities all =
        log_probabilities_by_block(a.logits + r * a.V, static_cast<i32>(a.V), argmax_token(a, r));
    logprob = all.of(token);
    if ((extras & batch::kTop) != 0)
      list_top_tokens_by_block<Args>(task, r, top_tokens_wanted(a, request_of_sample(a, r)), all);
  }
  if (thread() != 0) return;
  const auto& a = Args::of(task);
  a.token[r] = token;
  a.logprob[r] = logprob;
}

/// Brings what rows ask for into the L2, by a warp that is tasks ahead, as advance_ahead() does.
template <class Args>
inline void sampling_ahead(const Args& a) {
  constexpr u32 kRequests = static_cast<u32>(Args::N);
  prefetch_lines(a.sample_request, static_cast<u32>(a.R_largest) * 4);
  prefetch_lines(a.sampling_f32, kRequests * batch::kSamplingFloats * 4);
  prefetch_lines(a.sampling_i32, kRequests * batch::kSamplingInts * 4);
}

/// The body of the operator `sampling`: one token per sample row.
template <class Args>
inline void sample_rows_by_block(const Args& a) {
  const auto& task = *a.task;
  const i64 end = min(a.r_end, a.R);
#pragma unroll 1
  for (i64 r = a.r_begin; r < end; ++r) sample_row_by_block<Args>(task, r);
}

/// The body of the operator `gumbel_argmax` (kernels/cpu/gumbel.h): of equals the lowest token.
template <class Args>
inline void gumbel_argmax_by_block(const Args& a) {
  for (i64 r = a.r_begin; r < a.r_end && r < a.R; ++r) {
    const GumbelNoise noise(a, r);
    Place best = kLastPlace;
    each_of(
        static_cast<i32>(a.V), thread(), kThreads, [&](i32 v) { return to_f32(a.logits[r * a.V + v]); },
        [&](i32 v, f32 logit) {
          if (const Place at = {logit + noise(v), v}; at.is_before(best)) best = at;
        });
    const i32 token = block_first(best, static_cast<i32>(a.V));
    if (thread() == 0) a.token[r] = token;
  }
}

}  // namespace megalith::kernels
