// The ring in shared memory through which a worker's stream of weights passes: a producer warp fills slots and waits
// for nothing but a free one, the consumer warps empty them in the same order, every warp a share of every chunk. What
// a task finds there is known beforehand: chunk n since the launch lies in slot n % kRingSlots.
#pragma once

#include "megalith/kernels/cuda/barrier.cuh"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_layout.h"

// Of the architecture and of the bodies, given when a kernel is compiled (codegen/emit.cpp).
#if !defined(MEGALITH_SHARED_BYTES) || !defined(MEGALITH_AREA_BYTES) || !defined(MEGALITH_STREAM_ROWS)
#error "MEGALITH_SHARED_BYTES: what a block may have; _AREA_BYTES: what bodies work in; _STREAM_ROWS: of activations"
#endif

namespace megalith::kernels {

inline constexpr int kRingSlots = stream::ring_slots(MEGALITH_SHARED_BYTES, MEGALITH_AREA_BYTES);
inline constexpr int kRingBarriers = kRingSlots > 0 ? kRingSlots : 1;

/// The ring, then the area in which bodies work.
extern __shared__ __align__(1024) u8 dynamic_shared[];
__shared__ Barrier ring_full[kRingBarriers], ring_empty[kRingBarriers];

inline u8* ring_slot(u32 slot) { return dynamic_shared + slot * stream::kChunkBytes; }
inline u8* shared_area() { return dynamic_shared + kRingSlots * stream::kChunkBytes; }

/// Where in a ring something lies, and the parity of the phase in which it is there.
template <u32 kSlots>
struct PlaceInRing {
  u32 slot, parity;

  /// So many slots further, at most once round.
  PlaceInRing operator+(u32 count) const {
    const u32 next = slot + count;
    return next < kSlots ? PlaceInRing{next, parity} : PlaceInRing{next - kSlots, parity ^ 1};
  }
};
using RingPlace = PlaceInRing<kRingBarriers>;
/// Of a chunk, counted from the launch.
inline RingPlace ring_place(u64 chunk) {
  return {static_cast<u32>(chunk % kRingBarriers), static_cast<u32>(chunk / kRingBarriers) & 1};
}

// Many rows of activations pass through rings, too (kernels/cuda/wide.cuh): one for each part of the columns, in that
// part's share of the area. A stage is a block of columns, all rows of it (kernels/row_blocks.h).
inline constexpr u32 kPartBytes = MEGALITH_AREA_BYTES / stream::kWideParts / 128 * 128;
inline constexpr u32 kStageTiles = (MEGALITH_STREAM_ROWS + row_blocks::kRows - 1) / row_blocks::kRows;
inline constexpr u32 kStageBytes = kStageTiles * row_blocks::kTileBytes;
/// With few rows there are none. Eight are enough to have the L2 busy, whatever a stage's size.
inline constexpr bool kHasStages = MEGALITH_STREAM_ROWS > stream::kMostRows;
inline constexpr u32 kMostStages = 8, kStagesWithRoom = kStageBytes == 0 ? 0 : kPartBytes / kStageBytes;
inline constexpr u32 kStages = !kHasStages || kStagesWithRoom < 2 ? 1
                               : kStagesWithRoom < kMostStages    ? kStagesWithRoom
                                                                  : kMostStages;

using StagePlace = PlaceInRing<kStages>;
struct StageBarriers {
  Barrier full[kStages], empty[kStages];
};
__shared__ StageBarriers stage_barriers[stream::kWideParts];
/// Where a part's next block of activations comes; known to its warps alone.
__shared__ StagePlace stage_next[stream::kWideParts];

/// By one thread, before others use them.
inline void stages_make() {
  for (int part = 0; part < stream::kWideParts; ++part) {
    for (u32 stage = 0; stage < kStages; ++stage) {
      barrier_init(&stage_barriers[part].full[stage], kCopyLanes);
      barrier_init(&stage_barriers[part].empty[stage], kWarps / stream::kWideParts);
    }
    stage_next[part] = {0, 0};
  }
}

}  // namespace megalith::kernels
