// The other block of a cluster of two: its barriers and its shared memory (PTX ISA 7.8, sm_90 and later). Before that no block
// has one, and nothing of this is called.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"

namespace megalith::kernels {

#if __CUDA_ARCH__ >= 900
/// Where its variable lies that this block has at `at` (shared_address()).
inline u32 at_partner(u32 at) {
  u32 there;
  asm volatile(
      "{ .reg .u32 rank; mov.u32 rank, %%cluster_ctarank; xor.b32 rank, rank, 1; mapa.shared::cluster.u32 %0, "
      "%1, rank; }"
      : "=r"(there)
      : "r"(at));
  return there;
}
/// Release; pairs with partner_barrier_passed() there. `at`: at_partner() of a barrier.
inline void partner_arrive_at(u32 at) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" : : "r"(at) : "memory");
}
/// Of a barrier here at which the other block arrives. Acquire; may wait a little.
inline bool partner_barrier_passed(Barrier* barrier, u32 parity) {
  u32 passed;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, "
      "0, p; }"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}
/// `at`: at_partner() of 16 bytes.
inline void partner_store(u32 at, float4 value) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(at), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
               : "memory");
}
/// What was stored here so. `at`: its shared_address().
inline float4 load_from_partner(u32 at) {
  const uint4 bits = load_shared(at);
  return {__builtin_bit_cast(f32, bits.x), __builtin_bit_cast(f32, bits.y), __builtin_bit_cast(f32, bits.z),
          __builtin_bit_cast(f32, bits.w)};
}
/// By all threads of both that have not ended.
inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" : : : "memory");
}
#else
inline u32 at_partner(u32 at) { return at; }
inline void partner_arrive_at(u32) {}
inline bool partner_barrier_passed(Barrier*, u32) { return true; }
inline void partner_store(u32, float4) {}
inline float4 load_from_partner(u32) { return {0, 0, 0, 0}; }
inline void cluster_sync() {}
#endif

}  // namespace megalith::kernels
