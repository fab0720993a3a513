// Waiting at barriers in shared memory, on which warps with different duties meet.
#pragma once

#include "megalith/kernels/cuda/prelude.cuh"

namespace megalith::kernels {

inline void barrier_wait(Barrier* barrier, u32 parity) {
  while (!barrier_passed(barrier, parity)) {}
}

}  // namespace megalith::kernels
