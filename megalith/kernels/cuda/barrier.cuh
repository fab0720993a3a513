// Barriers in shared memory (mbarrier, PTX ISA section 9.7.13.15), on which warps with different duties meet, and the
// copies that complete on them: bulk copies (cp.async.bulk) from sm_90 on, cp.async by a whole warp before.
#pragma once

#include "megalith/kernels/cuda/prelude.cuh"

namespace megalith::kernels {

using Barrier = u64;  // opaque, in shared memory

inline u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }

/// A phase ends when `arrivals` have arrived, and the bytes expected have, too.
inline void barrier_init(Barrier* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// After the inits: the copy engine sees them, too.
inline void barriers_are_made() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
}
/// Release; pairs with barrier_passed(). `at`: shared_address() of a barrier.
inline void barrier_arrive_at(u32 at) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" : : "r"(at) : "memory");
}
inline void barrier_arrive(Barrier* barrier) { barrier_arrive_at(shared_address(barrier)); }
#if __CUDA_ARCH__ >= 900
#define MEGALITH_BARRIER_LOOK "mbarrier.try_wait.parity.shared.b64"
#else
#define MEGALITH_BARRIER_LOOK "mbarrier.test_wait.parity.shared.b64"
#endif
/// Whether the phase of this parity has ended. Acquire.
inline bool barrier_passed(Barrier* barrier, u32 parity) {
  u32 passed;
  asm volatile("{ .reg .pred p; " MEGALITH_BARRIER_LOOK " p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return passed != 0;
}
/// The same of several barriers, four of them asked together. `at`: their shared_address().
template <int kCount>
inline bool barriers_passed(const u32 (&at)[kCount], const u32 (&parity)[kCount]) {
  bool passed = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    u32 one;
    asm volatile("{ .reg .pred p; " MEGALITH_BARRIER_LOOK " p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(one)
                 : "r"(at[i]), "r"(parity[i])
                 : "memory");
    passed = passed && one != 0;
  }
  return passed;
}
inline bool barriers_passed(const u32 (&at)[4], const u32 (&parity)[4]) {
  u32 passed;
  asm volatile("{ .reg .pred p, q, r, s; " MEGALITH_BARRIER_LOOK " p, [%1], %5; " MEGALITH_BARRIER_LOOK
               " q, [%2], %6; " MEGALITH_BARRIER_LOOK " r, [%3], %7; " MEGALITH_BARRIER_LOOK
               " s, [%4], %8; and.pred p, p, q; and.pred r, r, s; and.pred p, p, r; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(parity[0]), "r"(parity[1]), "r"(parity[2]),
                 "r"(parity[3])
               : "memory");
  return passed != 0;
}
inline void barrier_wait(Barrier* barrier, u32 parity) {
  while (!barrier_passed(barrier, parity)) {}
}

#if __CUDA_ARCH__ >= 900
inline constexpr u32 kCopyArrivals = 1;
/// Copies by the copy engine: one lane asks, `full` ends its phase when the bytes are there. What is streamed is not
/// read again before the next iteration, so it makes way first in the L2.
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  if (lane() != 0) return;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               :
               : "r"(shared_address(full)), "r"(bytes)
               : "memory");
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
      :
      : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full)), "l"(policy)
      : "memory");
}
#else
inline constexpr u32 kCopyArrivals = kWarpLanes;
/// Copies by the lanes of a warp, 16 bytes at a time; each arrives when its own have.
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  for (u32 at = static_cast<u32>(lane()) * 16; at < bytes; at += kWarpLanes * 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(shared_address(to) + at), "l"(static_cast<const u8*>(from) + at)
                 : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(shared_address(full)) : "memory");
}
#endif

}  // namespace megalith::kernels
