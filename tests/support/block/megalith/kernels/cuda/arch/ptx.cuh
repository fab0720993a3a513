// In the place of megalith/kernels/cuda/arch/ptx.cuh: a block whose threads are a host's. What a program of tests has of
// its own, how threads meet and what order words and copies have, is in its block_threads.h (kernels/block/,
// device/block/): the ones calculate on memory that was filled before, the others look for an order that is missing.
#pragma once

#include <cmath>

#include "megalith/kernels/cpu/prelude.h"
#include "megalith/kernels/shared_budget.h"

#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace megalith::kernels {

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

// ---- words that threads change as they come, and that order nothing ----------------------------

template <class T>
T atomic_add(T* word, T value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
inline u32 flag_value(const u32* flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
inline void flag_put(u32* flag, u32 value) { __atomic_store_n(flag, value, __ATOMIC_RELAXED); }
inline bool flag_is_set(const u32* flag) { return flag_value(flag) != 0; }
inline void flag_set(u32* flag) { flag_put(flag, 1); }

/// As an H100 has them in a kernel of one row.
inline constexpr u32 kTilesAhead = 4;

/// Where variables of the block lie, then the ring and the area; of the including file.
inline constexpr bool kKnowsAddresses = true;
extern u8 dynamic_shared[];
inline void* block_memory(u32 offset) { return dynamic_shared + offset; }

// ---- calculations ------------------------------------------------------------------------------

inline f32 fast_rsqrt(f32 x) { return 1 / std::sqrt(x); }
inline f32 fast_exp(f32 x) { return std::exp(x); }
inline f32 fast_exp2(f32 x) { return std::exp2(x); }
inline f32 fast_max(f32 a, f32 b) { return std::fmax(a, b); }
inline constexpr f32 kLog2E = 1.4426950408889634f;
inline f32 fast_divide(f32 a, f32 b) { return a / b; }
inline u32 pack_bf16(f32 low, f32 high) { return to_bf16(low).bits | static_cast<u32>(to_bf16(high).bits) << 16; }
template <class T = bf16>
f32 one_of(u32 pair, int which) {
  return to_f32(T{static_cast<u16>(pair >> 16 * which)});
}
inline u32 pack_f16(f32 low, f32 high) {
  constexpr f32 kLargest = 65504;
  const auto pack = [](f32 x) {
    return static_cast<u32>(to_f16(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x).bits);
  };
  return pack(low) | pack(high) << 16;
}
inline f32 low_of_f16(u32 pair) { return one_of<f16>(pair, 0); }
inline f32 high_of_f16(u32 pair) { return one_of<f16>(pair, 1); }
inline u32 minus_bf16(u32 a, u32 b) { return pack_bf16(one_of(a, 0) - one_of(b, 0), one_of(a, 1) - one_of(b, 1)); }
inline u32 minus_f16(u32 a, u32 b) { return pack_f16(low_of_f16(a) - low_of_f16(b), high_of_f16(a) - high_of_f16(b)); }
inline u32 times_bf16(u32 a, u32 b) { return pack_bf16(one_of(a, 0) * one_of(b, 0), one_of(a, 1) * one_of(b, 1)); }
inline u32 times_f16(u32 a, u32 b) { return pack_f16(low_of_f16(a) * low_of_f16(b), high_of_f16(a) * high_of_f16(b)); }

}  // namespace megalith::kernels

// needs them
#include "block_threads.h"

namespace megalith::kernels {

inline void load_two_relaxed(u64& a, u64& b, const u64* words) {
  a = load_relaxed(words);
  b = load_relaxed(words + 1);
}
inline void store_two_relaxed(u64* words, u64 a, u64 b) {
  store_relaxed(words, a);
  store_relaxed(words + 1, b);
}

}  // namespace megalith::kernels
