// Products of pairs of bf16, two columns at a time, where the kernel is compiled for them (MEGALITH_BF16_PRODUCTS,
// megalith/jit/compiler.h): activations that meet weights in bf16 are rounded to bf16 first. There are processors that
// multiply pairs twice as fast as f32; the rest never round.
//
// A sum takes in the product of the odd column, then that of the even one, each fused and rounded once: that is what
// vdpbf16ps does, and two fused multiply-adds give the same bits without it (but for sums below 2^-126, which it makes
// zeros). It is one run over all columns, unlike that of f32, since rounded activations are off by more than it is.
#pragma once

#include "megalith/kernels/cpu/panels.h"

namespace megalith::kernels {

/// What an activation becomes before it is multiplied with such a weight.
template <class Weight>
struct MultipliedAs {
  typedef f32 Type;
};
#if defined(MEGALITH_BF16_PRODUCTS)
template <>
struct MultipliedAs<bf16> {
  typedef bf16 Type;
};
#endif
template <class Weight>
using Activation = typename MultipliedAs<Weight>::Type;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512BF16__)

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
// The instruction itself: compilers and their versions disagree about the types of its builtin.
MEGALITH_INLINE inline void multiply_add(Lanes& sum, Pairs a, Pairs b) {
  Lanes::Vector result = sum.v;
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(result) : "v"(a.v), "v"(b.v));
  sum.v = result;
}

#else

typedef LanePair Pairs;
MEGALITH_INLINE inline Pairs load_pairs(const bf16* at) { return two_columns(at); }
MEGALITH_INLINE inline Pairs broadcast_pair(const bf16* at) {
  return {Lanes::broadcast(to_f32(at[0])), Lanes::broadcast(to_f32(at[1]))};
}
MEGALITH_INLINE inline void multiply_add(Lanes& sum, const Pairs& a, const Pairs& b) {
  sum.multiply_add(a.odd, b.odd);
  sum.multiply_add(a.even, b.even);
}

#endif

}  // namespace megalith::kernels
