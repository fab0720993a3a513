// The ring in shared memory through which a worker's stream of weights passes: a producer warp fills slots and waits
// for nothing but a free one, the consumer warps empty them in the same order, every warp a share of every chunk. What
// a task finds there is known beforehand: chunk n of the stream lies in slot n % kRingSlots.
#pragma once

#include "megalith/kernels/cuda/barrier.cuh"
#include "megalith/kernels/stream_layout.h"

// Of the architecture and of the bodies, given when a kernel is compiled (codegen/emit.cpp).
#if !defined(MEGALITH_SHARED_BYTES) || !defined(MEGALITH_AREA_BYTES)
#error "MEGALITH_SHARED_BYTES: what a block may have; MEGALITH_AREA_BYTES: what bodies work in"
#endif

namespace megalith::kernels {

inline constexpr int kRingSlots = stream::ring_slots(MEGALITH_SHARED_BYTES, MEGALITH_AREA_BYTES);
inline constexpr int kRingBarriers = kRingSlots > 0 ? kRingSlots : 1;

/// The ring, then the area in which bodies work.
extern __shared__ __align__(1024) u8 dynamic_shared[];
__shared__ Barrier ring_full[kRingBarriers], ring_empty[kRingBarriers];

inline u8* ring_slot(u32 slot) { return dynamic_shared + slot * stream::kChunkBytes; }
inline u8* shared_area() { return dynamic_shared + kRingSlots * stream::kChunkBytes; }

/// Where a consumer warp stands in the ring.
class RingReader {
 public:
  /// `chunk`: number of the next chunk since the launch; it may wrap.
  explicit RingReader(u32 chunk) : chunk_(chunk) {}

  /// The chunk, once it is there.
  const u8* wait() const {
    const u32 slot = chunk_ % kRingBarriers;
    barrier_wait(&ring_full[slot], chunk_ / kRingBarriers & 1);
    return ring_slot(slot);
  }
  /// By all lanes, which have read what they want of the chunk.
  void next() {
    warp_sync();
    if (lane() == 0) barrier_arrive(&ring_empty[chunk_ % kRingBarriers]);
    ++chunk_;
  }

 private:
  u32 chunk_;
};

}  // namespace megalith::kernels
