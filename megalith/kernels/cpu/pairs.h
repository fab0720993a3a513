// Products of pairs of bf16, two columns at a time, where the kernel is compiled for them (MEGALITH_BF16_PRODUCTS or
// MEGALITH_AMX_PRODUCTS, megalith/jit/compiler.h): activations that meet weights in bf16 are rounded to bf16 first.
// There are processors that multiply pairs twice as fast as f32 (vdpbf16ps), or sixteen times (AMX); the rest never
// round.
//
// The order of a sum is that of the instruction, and fused multiply-adds give the same bits without it (but for sums
// below 2^-126, which it makes zeros):
//   vdpbf16ps   takes in the product of the odd column, then that of the even one, each fused and rounded once, in one
//               run over all columns
//   tdpbf16ps   of 32 columns even ones one after the other, each fused; odd ones likewise; the one plus the other; and
//               that is added to the sum
#pragma once

#include "megalith/kernels/cpu/panels.h"

namespace megalith::kernels {

/// What an activation becomes before it is multiplied with such a weight.
template <class Weight>
struct MultipliedAs {
  typedef f32 Type;
};
#if defined(MEGALITH_BF16_PRODUCTS) || defined(MEGALITH_AMX_PRODUCTS)
template <>
struct MultipliedAs<bf16> {
  typedef bf16 Type;
};
#endif
template <class Weight>
using Activation = typename MultipliedAs<Weight>::Type;

#if defined(MEGALITH_AMX_PRODUCTS)
inline constexpr bool kUsesTiles = true;
#else
inline constexpr bool kUsesTiles = false;
#endif

#if defined(MEGALITH_ROUNDS_LANES)

/// Two times 16 elements as bf16. Numbers below 2^-126 become zeros, which is what tiles take them for anyway.
typedef u16 RoundedLanes __attribute__((vector_size(64)));
MEGALITH_INLINE inline RoundedLanes rounded_lanes(const Lanes& low, const Lanes& high) {
  RoundedLanes rounded;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded) : "v"(low.v), "v"(high.v));
  return rounded;
}
/// to = those of `low`, then those of `high`.
MEGALITH_INLINE inline void put_rounded(bf16* to, const Lanes& low, const Lanes& high) {
  const RoundedLanes rounded = rounded_lanes(low, high);
  __builtin_memcpy(to, &rounded, sizeof rounded);
}
/// to = one of `low`, one of `high`, and so on.
MEGALITH_INLINE inline void put_rounded_in_turn(bf16* to, const Lanes& low, const Lanes& high) {
  const RoundedLanes rounded = rounded_lanes(low, high);
  const RoundedLanes turns =
      __builtin_shufflevector(rounded, rounded, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25,
                              10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  __builtin_memcpy(to, &turns, sizeof turns);
}

#else

MEGALITH_INLINE inline void put_rounded(bf16* to, const Lanes& low, const Lanes& high) {
  put_lanes(to, low, kLanes);
  put_lanes(to + kLanes, high, kLanes);
}
MEGALITH_INLINE inline void put_rounded_in_turn(bf16* to, const Lanes& low, const Lanes& high) {
  bf16 rounded[2 * kLanes];
  put_rounded(rounded, low, high);
  for (int l = 0; l < kLanes; ++l) {
    to[2 * l] = rounded[l];
    to[2 * l + 1] = rounded[l + kLanes];
  }
}

#endif

/// Pairs of columns of a tile, and those whose sums are formed by themselves: a tile's, or all that there are.
inline constexpr i64 kStepsOfTile = 16, kStepsOfSum = kUsesTiles ? kStepsOfTile : i64{1} << 40;

#if !defined(MEGALITH_AMX_PRODUCTS) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512BF16__)

/// A pair of bf16 in each lane.
struct Pairs {
  typedef int Vector __attribute__((vector_size(64), may_alias));
  Vector v;
};
MEGALITH_INLINE inline Pairs load_pairs(const bf16* at) { return {*reinterpret_cast<const Pairs::Vector*>(at)}; }
MEGALITH_INLINE inline Pairs broadcast_pair(const bf16* at) {
  int pair;
  __builtin_memcpy(&pair, at, sizeof pair);
  return {pair - Pairs::Vector{}};
}

/// A sum of products of pairs.
struct PairSum {
  Lanes sum = Lanes::zero();

  static PairSum from(const Lanes& sum) { return {.sum = sum}; }
  // The instruction itself: compilers and their versions disagree about the types of its builtin.
  MEGALITH_INLINE void multiply_add(Pairs a, Pairs b) {
    Lanes::Vector result = sum.v;
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(result) : "v"(a.v), "v"(b.v));
    sum.v = result;
  }
  MEGALITH_INLINE void fold() {}
  MEGALITH_INLINE Lanes total() const { return sum; }
};

#else

typedef LanePair Pairs;
MEGALITH_INLINE inline Pairs load_pairs(const bf16* at) { return two_columns(at); }
MEGALITH_INLINE inline Pairs broadcast_pair(const bf16* at) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  typedef int Bits __attribute__((vector_size(64), may_alias));
  int pair;
  __builtin_memcpy(&pair, at, sizeof pair);
  const Bits bits = pair - Bits{};
  return {{reinterpret_cast<Lanes::Vector>(bits << 16)}, {reinterpret_cast<Lanes::Vector>(bits & ~0xffff)}};
#else
  return {Lanes::broadcast(to_f32(at[0])), Lanes::broadcast(to_f32(at[1]))};
#endif
}

#if defined(MEGALITH_AMX_PRODUCTS)

/// A sum of products of pairs.
struct PairSum {
  Lanes all = Lanes::zero(), even = Lanes::zero(), odd = Lanes::zero();

  static PairSum from(const Lanes& sum) { return {.all = sum}; }
  MEGALITH_INLINE void multiply_add(const Pairs& a, const Pairs& b) {
    even.multiply_add(a.even, b.even);
    odd.multiply_add(a.odd, b.odd);
  }
  /// At the end of kStepsOfSum pairs, and of all.
  MEGALITH_INLINE void fold() {
    all = kernels::sum(all, kernels::sum(even, odd));
    even = odd = Lanes::zero();
  }
  MEGALITH_INLINE Lanes total() const { return all; }
};

#else

/// A sum of products of pairs.
struct PairSum {
  Lanes sum = Lanes::zero();

  static PairSum from(const Lanes& sum) { return {.sum = sum}; }
  MEGALITH_INLINE void multiply_add(const Pairs& a, const Pairs& b) {
    sum.multiply_add(a.odd, b.odd);
    sum.multiply_add(a.even, b.even);
  }
  MEGALITH_INLINE void fold() {}
  MEGALITH_INLINE Lanes total() const { return sum; }
};

#endif
#endif

}  // namespace megalith::kernels
