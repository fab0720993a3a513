// Which worker a block is. As a rule that is its number. Where streams are dealt to the sides of the L2
// (runtime/cuda/sides.h) a worker belongs to a multiprocessor. There is a block on each of them, so every block finds its
// worker free; but no rule of CUDA's says so, and a worker that were two blocks, or none, would be a hang. So a block
// takes its worker by an atomic, and if somebody was there before, the next one that is free: it only reads from the far
// side then.
#pragma once

#include "megalith/kernels/cuda/common/shared_variables.cuh"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

/// The block's worker. Asked for where it is used: kept over a body it would spill.
inline u32& worker_slot() {
  return kernels::shared_variable<u32, kernels::place::kWorker, kernels::place::kWaitsForWords>();
}
inline u32 worker_number() { return kernels::flag_value(&worker_slot()); }

/// By one thread, before any other asks.
inline void take_worker(const Launch& launch, u32 block) {
  u32 worker = block;
  if (launch.sides.maps != nullptr) {
    const u32 multiprocessor = kernels::multiprocessor();
    if (multiprocessor < launch.sides.num_sms) worker = launch.sides.worker_of_sm[multiprocessor];
    // Relaxed: nothing is handed over.
    while (kernels::exchange(launch.sides.taken + worker, launch.sides.launch) == launch.sides.launch)
      worker = worker + 1 < launch.num_workers ? worker + 1 : 0;
  }
  worker_slot() = worker;
}

}  // namespace megalith::runtime
