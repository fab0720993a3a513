// The end of an iteration of a token loop over tables, on a GPU: the CPU's steps (kernels/cpu/next_batch.h). They are bookkeeping
// of a few words, by one thread of the block; but drafts are looked for in whole texts, by all of them.
#pragma once

#include "megalith/kernels/cpu/next_batch.h"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/next_batch_layout.h"

namespace megalith::kernels {

struct NextBatchArea {
  i32 is_sound, is_idle;
  DraftMatch matches[kWarps];
};

/// find_match(), by a block: for every thread of it. Whoever looks at a token has to see what another thread wrote there.
template <class Args>
inline DraftMatch find_match_by_block(const Args& a, NextBatchArea& area, i64 request, int length) {
  constexpr int kAtOnce = 8;
  // Tokens are whole numbers of 4 bytes or 8, and none is negative.
  constexpr i64 kWords = sizeof(a.tokens[0]) / sizeof(u32);
  const u32* const words = reinterpret_cast<const u32*>(a.tokens + request * (a.W / a.N));
  const auto token = [&](int s) { return static_cast<i32>(load_relaxed(words + s * kWords)); };
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
  if (lane() == 0) area.matches[warp()] = best;
  block_sync();
#pragma unroll 1
  for (int w = 0; w < kWarps; ++w) best = better_match(best, area.matches[w]);
  block_sync();  // all have looked at them
  return match_length(best) >= NextDrafts<Args>::kMatch ? best : 0;
}

/// find_matches(), by a block.
template <class Args>
inline void find_matches_by_block(const Args& args, NextBatchArea& area) {
  if constexpr (NextDrafts<Args>::kIsOn)
#pragma unroll 1
    for (i64 r = 0; r < args.R; ++r) {
      if (room_for_drafts(args, r) == 0) continue;
      const i64 request = of_slot(args, kSlotRequest, r);
      const DraftMatch match = find_match_by_block(args, area, request, args.step[request] + 1);
      if (thread() == 0) of_slot(args, kSlotMatch, r) = static_cast<i32>(match);
    }
}

inline NextBatchArea& next_batch_area() {
  static_assert(sizeof(NextBatchArea) <= kNextBatchAreaBytes);
  return *reinterpret_cast<NextBatchArea*>(shared_area());
}

/// The body of `next_batch`. After an abort there is nothing to take in: what came here may be anything
/// (runtime/cuda/worker.cuh).
template <class Args>
inline void next_batch_by_block(const Args& args) {
  NextBatchArea& area = next_batch_area();
  if (thread() == 0)
    area.is_sound = load_relaxed(args.abort) == 0 && take_in_batch(args, Untold{}) && admit_batch(args) ? 1 : 0;
  block_sync();
  if (area.is_sound == 0) return;
  find_matches_by_block(args, area);
  if (thread() == 0) lay_out_batch(args);
}

}  // namespace megalith::kernels
