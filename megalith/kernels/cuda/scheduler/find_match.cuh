// Drafts on a GPU: the best place in a sequence (kernels/drafts.h), looked for by all threads of a block.
#pragma once

#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/drafts.h"

namespace megalith::kernels {

/// find_match() by a block, for every thread of it, but however short the match. `matches` has a place for each warp, which all look at
/// last: the block syncs before it is written again.
template <class Token>
inline DraftMatch find_match_by_block(Token token, int length, DraftMatch* matches) {
  constexpr int kAtOnce = 8;
  const i32 last = token(length - 1);
  DraftMatch best = 0;
#pragma unroll 1
  for (int begin = thread(); begin < length - 1; begin += kAtOnce * kThreads) {
    i32 tokens[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) tokens[i] = token(min(begin + i * kThreads, length - 1));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (tokens[i] == last && begin + i * kThreads < length - 1)
        best = better_match(best, match_at(token, length, begin + i * kThreads));
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
