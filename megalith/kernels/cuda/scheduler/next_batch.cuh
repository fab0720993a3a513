// The end of an iteration of a token loop over tables, on a GPU: the CPU's steps (kernels/cpu/next_batch.h). They are bookkeeping
// of a few words, by one thread of the block; but drafts are looked for in whole texts, by all of them.
#pragma once

#include "megalith/kernels/cpu/next_batch.h"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/cuda/scheduler/find_match.cuh"
#include "megalith/kernels/next_batch_layout.h"

namespace megalith::kernels {

struct NextBatchArea {
  i32 is_sound, is_idle;
  DraftMatch matches[kWarps];
};

/// find_matches(), by a block. Whoever looks at a token has to see what another thread wrote there.
template <class Args>
inline void find_matches_by_block(const Args& args, NextBatchArea& area) {
  if constexpr (NextDrafts<Args>::kIsOn)
#pragma unroll 1
    for (i64 r = 0; r < args.R; ++r) {
      if (room_for_drafts(args, r) == 0) continue;
      const i64 request = of_slot(args, kSlotRequest, r);
      // Tokens are whole numbers of 4 bytes or 8, and none is negative.
      constexpr i64 kWords = sizeof(args.tokens[0]) / sizeof(u32);
      const u32* const words = reinterpret_cast<const u32*>(args.tokens + request * (args.W / args.N));
      const auto token = [&](int s) { return static_cast<i32>(load_relaxed(words + s * kWords)); };
      const DraftMatch match = find_match_by_block(token, args.step[request] + 1, area.matches);
      block_sync();  // all have looked at them
      if (thread() == 0)
        of_slot(args, kSlotMatch, r) = match_length(match) >= NextDrafts<Args>::kMatch ? static_cast<i32>(match) : 0;
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
