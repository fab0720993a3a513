// In the place of megalith/kernels/cuda/ptx.cuh: a block of eight threads of the host, for bodies that take nothing of
// a GPU but who a thread is, barriers, sums and shuffles. What is __shared__ is a variable of the file that includes
// this.
#pragma once

#include <barrier>
#include <cstring>

#include "megalith/kernels/cpu/prelude.h"

#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct float2 {
  float x, y;
};
// Of prelude.cuh and ring.cuh, where nobody calls them.
float __expf(float);
float __fdividef(float, float);

namespace megalith::kernels {

inline constexpr int kThreads = 8, kWarpLanes = 4, kWarps = kThreads / kWarpLanes;

inline thread_local int self = 0;
inline std::barrier<> block_barrier(kThreads);
inline std::barrier<> warp_barriers[kWarps] = {std::barrier<>(kWarpLanes), std::barrier<>(kWarpLanes)};
inline u64 shuffled[kThreads];

inline int thread() { return self; }
inline int lane() { return self % kWarpLanes; }
inline int warp() { return self / kWarpLanes; }
inline void block_sync() { block_barrier.arrive_and_wait(); }
inline void warp_sync() { warp_barriers[warp()].arrive_and_wait(); }

template <class T>
T atomic_add(T* word, T value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

inline i32 atomic_or(i32* word, i32 bits) { return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED); }

using Barrier = u64;
bool barrier_passed(Barrier*, u32);

}  // namespace megalith::kernels

template <class T>
T __shfl_xor_sync(unsigned, T value, int apart) {
  using namespace megalith::kernels;
  static_assert(sizeof(T) <= sizeof(u64));
  std::memcpy(&shuffled[self], &value, sizeof value);
  warp_sync();
  std::memcpy(&value, &shuffled[self ^ apart], sizeof value);
  warp_sync();
  return value;
}
