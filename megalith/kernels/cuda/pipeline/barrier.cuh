// Waiting and arriving at barriers in shared memory, on which warps with different duties meet.
//
// Threads that have met, at a barrier of their warp or block, let one of them arrive for all: order is transitive.
// compute-sanitizer's racecheck takes only who arrives himself for ordered, so it is given kernels in which all do
// (every_thread_arrives). Those have a proxy fence, too, between the last read of a slot of the ring and its
// next copy, as the PTX ISA wants it between any two proxies; the others do without, since a read that has been made
// cannot see what is written later (it would take Qwen3-0.6B on an H200 1.7 % longer). But a load is made when an
// instruction has used what it brings, and not before: an arrival overtakes loads that are still under way, by more than
// a copy from the L2 takes, as far as has been seen on an H100. So a slot is given back behind what uses it.
#pragma once

#include "megalith/kernels/cuda/common/prelude.cuh"
#include "megalith/kernels/cuda/common/worker_config.cuh"

namespace megalith::kernels {

inline constexpr bool kEveryThreadArrives = kWorkerConfig.every_thread_arrives;
/// How often a warp, and all compute warps of a block, arrive together.
inline constexpr u32 kArrivalsOfWarp = kEveryThreadArrives ? kWarpLanes : 1,
                     kArrivalsOfBlock = kEveryThreadArrives ? kThreads : 1;

/// By a warp that has met.
inline void warp_arrive(Barrier* barrier) {
  if (kEveryThreadArrives || lane() == 0) barrier_arrive(barrier);
}
/// By compute warps that have met.
inline void block_arrive(Barrier* barrier) {
  if (kEveryThreadArrives || thread() == 0) barrier_arrive(barrier);
}

inline void barrier_wait(Barrier* barrier, u32 parity) {
  while (!barrier_passed(barrier, parity)) {}
}

}  // namespace megalith::kernels
