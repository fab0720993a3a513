// Drafts on a GPU: the best place in a sequence (kernels/drafts.h), looked for by all threads of a block.
#pragma once

#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/drafts.h"

namespace megalith::kernels {

/// same_tokens(), eight at a time: a load behind each comparison would be a trip to the L2 for each token.
template <class Token>
inline int same_tokens_by_eights(Token token, int length, int end) {
  constexpr int kAtOnce = 8;
  int same = 1;
#pragma unroll 1
  for (bool goes_on = true; goes_on;) {
    i32 there[kAtOnce], last[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      there[i] = token(max(end - same - i, 0));
      last[i] = token(max(length - 1 - same - i, 0));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      goes_on = goes_on && same < batch::kLongestMatch && same <= end && there[i] == last[i];
      same += goes_on ? 1 : 0;
    }
  }
  return same;
}

/// find_match() by a block, for every thread of it, but however short the match. `matches` has a place for each warp, which all look at
/// last: the block syncs before it is written again.
template <class Token>
inline DraftMatch find_match_by_block(Token token, int length, DraftMatch* matches) {
  constexpr int kAtOnce = 8;
  const i32 last = token(length - 1);
  DraftMatch best = 0;
  // A place that the thread looks at later stands further in front, so it counts only if more tokens are those at the end.
#pragma unroll 1
  for (int end = length - 2 - thread(); end >= match_length(best) && match_length(best) < batch::kLongestMatch;
       end -= kAtOnce * kThreads) {
    i32 tokens[kAtOnce];
    u32 places = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) tokens[i] = token(max(end - i * kThreads, 0));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) places |= tokens[i] == last && end >= i * kThreads ? 1u << i : 0u;
#pragma unroll 1
    for (; places != 0; places &= places - 1) {
      const int place = end - (__ffs(static_cast<int>(places)) - 1) * kThreads;
      if (may_be_better(token, length, place, best))
        best = better_match(best, match_of(same_tokens_by_eights(token, length, place), place));
    }
  }
#pragma unroll
  for (int apart = 1; apart < kWarpLanes; apart *= 2)
    best = better_match(best, __shfl_sync(0xffffffffu, best, lane() ^ apart));
  if (lane() == 0) matches[warp()] = best;
  block_sync();
#pragma unroll 1
  for (int w = 0; w < kWarps; ++w) best = better_match(best, matches[w]);
  return best;
}

}  // namespace megalith::kernels
