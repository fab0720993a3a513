// What a GPU can do: how fast its memory is read, and how fast its tensor cores multiply, by kernels that do nothing
// else. What operators are held against, in the same run. Each needs NVRTC and a GPU.
#pragma once

#include <string>

namespace megalith::runtime {

/// GB/s (10^9 bytes) at which all multiprocessors together read a buffer far larger than the L2. The fastest pass
/// counts.
double cuda_read_bandwidth_gbs();

/// GFLOP/s of mma.sync on bf16 with sums in f32 in registers, on all multiprocessors: what bodies here multiply with.
/// The median of turns counts.
double cuda_multiply_rate_gflops();

/// Their source, to be compiled for an architecture.
const char* cuda_limits_source();

}  // namespace megalith::runtime
