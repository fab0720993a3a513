// How fast the processor at hand multiplies: what a prompt's rate is held against, as a decoder's is held against the
// bandwidth of memory (runtime/bandwidth.h), and measured beside it for the same reasons.
#pragma once

namespace megalith::runtime {

struct MultiplyRateOptions {
  int num_threads = 1;
  double seconds = 0.4;
  bool f32_alone = false;  // without products of bf16: what a program that multiplies f32 can reach
};

/// GFLOP/s (a multiplication and an addition are two) that `num_threads` pinned threads reach together in loops whose
/// sums, in f32, stay in registers and whose operands come from the first-level cache: fused multiply-adds of f32, dot
/// products of bf16 pairs or products of tiles of bf16 (AMX), of those that the processor has the fastest. The median
/// of turns of about a millisecond counts: for a few of them a cool core may be a third faster than it can go on.
double cpu_multiply_rate_gflops(const MultiplyRateOptions& options);

}  // namespace megalith::runtime
