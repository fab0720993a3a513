// The ring in shared memory through which a worker's stream of weights passes: the loader warp fills slots and waits
// for nothing but a free one, the compute warps empty them in the same order, every warp a share of every chunk or,
// with many rows of activations, some of the warps each. What a task finds there is known beforehand: chunk n since the
// launch lies in slot n % kRingSlots.
#pragma once

#include "megalith/kernels/cuda/common/shared_variables.cuh"
#include "megalith/kernels/cuda/common/worker_config.cuh"
#include "megalith/kernels/cuda/pipeline/barrier.cuh"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// Where weights are int8 a slot has scales as well.
inline constexpr int kScaleBytes = kWorkerConfig.scale_bytes;
inline constexpr int kRingSlots =
    stream::ring_slots(kWorkerConfig.shared_bytes, kWorkerConfig.area_bytes, kWorkerConfig.stream_rows, kScaleBytes);
inline constexpr int kRingBarriers = kRingSlots > 0 ? kRingSlots : 1;

/// Of each slot: what is there, what is not any more.
struct RingBarriers {
  Barrier full[kRingBarriers], empty[kRingBarriers];
};
inline RingBarriers& ring_barriers() { return shared_variable<RingBarriers, place::kRingBarriers, place::kSquares>(); }

/// The ring, its scales, then the area in which bodies work.
inline u8* ring_slot(u32 slot) { return static_cast<u8*>(block_memory(kBehindVariables + slot * stream::kChunkBytes)); }
inline u8* ring_scales(u32 slot) { return ring_slot(kRingSlots) + slot * kScaleBytes; }
inline u8* shared_area() { return ring_scales(kRingSlots); }

/// Where a chunk lies, and the parity of the phase in which it is there.
struct RingPlace {
  u32 slot, parity;

  /// So many chunks further, at most once round.
  RingPlace operator+(u32 count) const {
    const u32 next = slot + count;
    return next < kRingBarriers ? RingPlace{next, parity} : RingPlace{next - kRingBarriers, parity ^ 1};
  }
  /// The same, however often round.
  RingPlace any_further(u32 count) const {
    const u32 next = slot + count;
    return {next % kRingBarriers, parity ^ (next / kRingBarriers & 1)};
  }
};

}  // namespace megalith::kernels
