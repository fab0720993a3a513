// The variables of a block. On sm_90 the compiler adds the block's number in its cluster to the address of a __shared__
// variable, and asks a special register for that wherever it is used: three instructions, the first of which takes as
// long as a dozen others. So with few rows, where instructions count, variables lie in the first bytes of what a launch
// asks for, before the ring and the area (pipeline/weight_ring.cuh), and an instruction names the address: Qwen3-0.6B
// takes 2.5 % less time.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// Where each of them lies.
namespace place {
/// Of tasks that the prefetch warp may be ahead (runtime/cuda/worker.cuh): with few rows the next layer's attention, five
/// tasks on, has a frame as soon as this layer's has ended.
inline constexpr u32 kNumFrames = kKnowsAddresses ? 5 : 4;
inline constexpr u32 kFrames = 0, kFrameBarriers = kFrames + kNumFrames * 512,
                     kRingBarriers = kFrameBarriers + (3 * kNumFrames * 8 + 15) / 16 * 16,
                     kSquares = kRingBarriers + 2 * 12 * 8,
                     kRows = kSquares + stream::kMaxRows * stream::kConsumerWarps * 4,
                     kAttended = kRows + 32 + 3 * static_cast<u32>(kWorkerConfig.table_rows) * 4,
                     kOfWarps = kAttended + 16, kAbortWord = kOfWarps + stream::kConsumerWarps * 16,
                     kFlagNote = kAbortWord + 8, kEnded = kFlagNote + 8, kStopped = kEnded + 8, kGate = kStopped + 4,
                     kStreamIdle = kGate + 4, kNextMail = kStreamIdle + 8, kSizes = kNextMail + 32,
                     kWorker = kSizes + 32, kWaitsForWords = kWorker + 4, kFault = kWorker + 16, kEnd = kFault + 8;
static_assert(!kKnowsAddresses || kEnd <= stream::kVariablesBytes);
}  // namespace place

inline constexpr u32 kBehindVariables = kKnowsAddresses ? stream::kVariablesBytes : 0;

/// The variable from byte kAt on; the next one begins at byte kNext.
template <class T, u32 kAt, u32 kNext>
inline T& shared_variable() {
  static_assert(kAt % alignof(T) == 0 && kAt + sizeof(T) <= kNext,
                "a place for this variable is in kernels/cuda/common/shared_variables.cuh");
  if constexpr (kKnowsAddresses) {
    return *static_cast<T*>(block_memory(kAt));
  } else {
    __shared__ __align__(16) T variable;
    return variable;
  }
}

}  // namespace megalith::kernels
