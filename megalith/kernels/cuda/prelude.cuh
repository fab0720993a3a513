// What every body on a GPU may use: the types, conversions and functions of kernels/cpu/prelude.h, which are plain C++
// in exact operations and give the same bits here (NVRTC runs with --fmad=false), and who a thread is within its block.
//
// A block of kThreads threads is one worker. It walks a body in step; docs/cuda.md says how work is dealt out.
#pragma once

#include "megalith/kernels/cuda/builtins.cuh"

// needs them
#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// Threads that run bodies. 16 warps have enough loads in flight together; with the three warps beside them each thread
/// has 96 registers, since they are dealt to four warps at a time. With 8 warps Qwen3-0.6B took 6 % longer on an H200, and
/// Qwen3-8B 0.6 % less.
inline constexpr int kThreads = 512, kWarpLanes = 32, kWarps = kThreads / kWarpLanes;
/// A block has three warps more, with duties of their own (runtime/cuda/worker.cuh).
inline constexpr int kBlockThreads = kThreads + 3 * kWarpLanes;

inline int thread() { return static_cast<int>(threadIdx.x); }
inline int lane() { return static_cast<int>(threadIdx.x % kWarpLanes); }
inline int warp() { return static_cast<int>(threadIdx.x / kWarpLanes); }

/// Among the threads that run bodies.
inline void block_sync() { asm volatile("bar.sync 1, %0;" : : "n"(kThreads) : "memory"); }
inline void warp_sync() { __syncwarp(); }

/// Functions of tuned bodies: the hardware's, good to about 2^-22.
inline f32 fast_rsqrt(f32 x) {
  f32 y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline f32 fast_exp(f32 x) { return __expf(x); }
inline f32 fast_divide(f32 a, f32 b) { return __fdividef(a, b); }

/// The clock of profile records: of this multiprocessor, which no other shares.
inline u64 profile_clock() { return static_cast<u64>(clock64()); }

/// to = value, by one thread. All threads worked the value out.
template <class T, class V>
inline void block_store(T& to, V value) {
  if (thread() == 0) to = static_cast<T>(value);
}
template <class T, class V>
inline void warp_store(T& to, V value) {
  if (lane() == 0) to = static_cast<T>(value);
}

}  // namespace megalith::kernels
