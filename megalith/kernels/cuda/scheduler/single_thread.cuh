// Operators that no loop kernel can say and that are bookkeeping of a few words, on a GPU: the CPU's bodies, run by one
// thread of the block.
#pragma once

#include "megalith/kernels/cpu/advance.h"
#include "megalith/kernels/cuda/common/prelude.cuh"

namespace megalith::kernels {

template <class Args>
inline void advance_by_one(const Args& args) {
  // After an abort there is nothing to take in: what came here may be anything (runtime/cuda/worker.cuh).
  if (thread() == 0 && load_relaxed(args.abort) == 0) advance(args);
}

}  // namespace megalith::kernels
