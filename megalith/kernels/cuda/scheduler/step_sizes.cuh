// Dynamic sizes, such as how many rows an iteration has, kept where every task of it finds them. Whoever has several
// rows cannot ask for the first of them before he knows how many there are; a look into device memory for that, in each
// task, stood before all others.
#pragma once

#include "megalith/kernels/cuda/common/shared_variables.cuh"
#include "megalith/runtime/protocol.h"

namespace megalith::kernels {

struct IterationSizes {
  const i32* at;  // where they stand in device memory, or nullptr: they may change within an iteration
  i32 values[runtime::kIterationSizes];
};
inline IterationSizes& iteration_sizes() { return shared_variable<IterationSizes, place::kSizes, place::kWorker>(); }

/// By one thread at the beginning of an iteration; there after the next barrier of the block. `at` may be nullptr.
inline void look_up_sizes(const i32* at) {
  if (at == nullptr) return;
  i32 values[runtime::kIterationSizes];
#pragma unroll
  for (u32 i = 0; i < runtime::kIterationSizes; ++i) values[i] = static_cast<const volatile i32*>(at)[i];
#pragma unroll
  for (u32 i = 0; i < runtime::kIterationSizes; ++i) iteration_sizes().values[i] = values[i];
  iteration_sizes().at = at;
}
/// What stands at `at`.
inline i32 iteration_size(const i32* at) {
  const IterationSizes& sizes = iteration_sizes();
  const u64 index = (reinterpret_cast<u64>(at) - reinterpret_cast<u64>(sizes.at)) / sizeof(i32);
  return index < runtime::kIterationSizes ? sizes.values[index] : *at;
}

}  // namespace megalith::kernels
