// Sixteen f32 lanes, the unit of every sum over weights: one AVX-512 register, two of AVX2, four of NEON. Each machine
// has the same lanes and adds them in the same tree as kernels/cpu/reduce.h, so they all give the same bits.
//
// Builtins rather than intrinsics, whose headers take longer to read than a kernel to compile; and rather than vector
// expressions for the two operations that matter: g++ 12 widens u16 to u32 in several steps, and a * b + c is not fused
// under -ffp-contract=off.
#pragma once

#include "megalith/kernels/cpu/reduce.h"

namespace megalith::kernels {

static_assert(kLanes == 16);

#if defined(__AVX512F__) && defined(__AVX512BW__)

struct Lanes {
  typedef f32 Vector __attribute__((vector_size(64)));
  typedef f32 Half __attribute__((vector_size(32)));
  typedef f32 Quarter __attribute__((vector_size(16)));
  typedef f32 LooseVector __attribute__((vector_size(64), aligned(4), may_alias));
  typedef short Narrow __attribute__((vector_size(32)));
  typedef short LooseNarrow __attribute__((vector_size(32), aligned(2), may_alias));
  typedef int Wide __attribute__((vector_size(64)));
  typedef u16 UnsignedNarrow __attribute__((vector_size(32)));

  Vector v;

  static Lanes zero() { return {Vector{}}; }
  static Lanes broadcast(f32 x) { return {x - Vector{}}; }
  static Lanes load(const f32* x) { return {*reinterpret_cast<const LooseVector*>(x)}; }
  void store(f32* x) const { *reinterpret_cast<LooseVector*>(x) = v; }
  static Lanes load(const bf16* x) {
    const Narrow bits = *reinterpret_cast<const LooseNarrow*>(x);
#if defined(__clang__)
    const Wide wide = __builtin_convertvector(reinterpret_cast<UnsignedNarrow>(bits), Wide);
#else
    const Wide wide = __builtin_ia32_pmovzxwd512_mask(bits, Wide{}, static_cast<u16>(-1));
#endif
    return {reinterpret_cast<Vector>(wide << 16)};
  }
  /// this += a * b, rounded once.
  void multiply_add(Lanes a, Lanes b) {
    constexpr int kCurrentRounding = 4;
    v = __builtin_ia32_vfmaddps512_mask(a.v, b.v, v, static_cast<u16>(-1), kCurrentRounding);
  }
  /// The same, in a register: g++ otherwise loads it again wherever it is used.
  Lanes held() const {
    Vector held = v;
    __asm__("" : "+v"(held));
    return {held};
  }
  f32 sum() const {
    const Half half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                      __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    const Quarter quarter =
        __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
  }
};

#elif defined(__AVX2__) && defined(__FMA__)

struct Lanes {
  typedef f32 Half __attribute__((vector_size(32)));
  typedef f32 Quarter __attribute__((vector_size(16)));
  typedef f32 LooseHalf __attribute__((vector_size(32), aligned(4), may_alias));
  typedef short Narrow __attribute__((vector_size(16)));
  typedef short LooseNarrow __attribute__((vector_size(16), aligned(2), may_alias));
  typedef int Wide __attribute__((vector_size(32)));
  typedef u16 UnsignedNarrow __attribute__((vector_size(16)));

  Half low, high;

  static Lanes zero() { return {Half{}, Half{}}; }
  static Lanes broadcast(f32 x) { return {x - Half{}, x - Half{}}; }
  void store(f32* x) const {
    *reinterpret_cast<LooseHalf*>(x) = low;
    *reinterpret_cast<LooseHalf*>(x + 8) = high;
  }
  static Lanes load(const f32* x) {
    return {*reinterpret_cast<const LooseHalf*>(x), *reinterpret_cast<const LooseHalf*>(x + 8)};
  }
  static Half widen(Narrow bits) {
#if defined(__clang__)
    const Wide wide = __builtin_convertvector(reinterpret_cast<UnsignedNarrow>(bits), Wide);
#else
    const Wide wide = __builtin_ia32_pmovzxwd256(bits);
#endif
    return reinterpret_cast<Half>(wide << 16);
  }
  static Lanes load(const bf16* x) {
    return {widen(*reinterpret_cast<const LooseNarrow*>(x)), widen(*reinterpret_cast<const LooseNarrow*>(x + 8))};
  }
  Lanes held() const { return *this; }
  /// this += a * b, rounded once.
  void multiply_add(Lanes a, Lanes b) {
    low = __builtin_ia32_vfmaddps256(a.low, b.low, low);
    high = __builtin_ia32_vfmaddps256(a.high, b.high, high);
  }
  f32 sum() const {
    const Half half = low + high;
    const Quarter quarter =
        __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
  }
};

#else

struct Lanes {
  f32 v[kLanes];

  static Lanes zero() { return {}; }
  static Lanes broadcast(f32 x) {
    Lanes result;
    for (int l = 0; l < kLanes; ++l) result.v[l] = x;
    return result;
  }
  void store(f32* x) const {
    for (int l = 0; l < kLanes; ++l) x[l] = v[l];
  }
  static Lanes load(const f32* x) {
    Lanes result;
    for (int l = 0; l < kLanes; ++l) result.v[l] = x[l];
    return result;
  }
  static Lanes load(const bf16* x) {
    Lanes result;
    for (int l = 0; l < kLanes; ++l) result.v[l] = to_f32(x[l]);
    return result;
  }
  const Lanes& held() const { return *this; }
  /// this += a * b, rounded once.
  void multiply_add(const Lanes& a, const Lanes& b) {
    for (int l = 0; l < kLanes; ++l) v[l] = fma(a.v[l], b.v[l], v[l]);
  }
  f32 sum() const {
    f32 lane[kLanes];
    for (int l = 0; l < kLanes; ++l) lane[l] = v[l];
    return add_lanes(lane);
  }
};

#endif

/// to = value, in the element type of `to`.
MEGALITH_INLINE inline void put(f32& to, f32 value) { to = value; }
MEGALITH_INLINE inline void put(bf16& to, f32 value) { to = to_bf16(value); }
MEGALITH_INLINE inline void put(f16& to, f32 value) { to = to_f16(value); }

/// Of any element type.
template <class Element>
MEGALITH_INLINE inline Lanes load_lanes(const Element* x) {
  return Lanes::load(x);
}
MEGALITH_INLINE inline Lanes load_lanes(const f16* x) {
  f32 wide[kLanes];
  for (int l = 0; l < kLanes; ++l) wide[l] = to_f32(x[l]);
  return Lanes::load(wide);
}

/// The first `count` elements, and zeros: products with zeros leave a sum as it is.
template <class Element>
MEGALITH_INLINE inline Lanes load_partly(const Element* x, i64 count) {
  Element padded[kLanes] = {};
  for (i64 l = 0; l < count; ++l) padded[l] = x[l];
  return load_lanes(padded);
}

/// Whether elements become bf16 by an instruction, which makes numbers below 2^-126 zeros: where all that reads them in
/// bf16 does so, too (kernels/cpu/pairs.h).
#if (defined(MEGALITH_AMX_PRODUCTS) || defined(MEGALITH_BF16_PRODUCTS)) && defined(__AVX512F__) && \
    defined(__AVX512BW__) && defined(__AVX512BF16__)
#define MEGALITH_ROUNDS_LANES
#endif

/// to[l] = x[l] for l below `count`, at most 16.
template <class Element>
MEGALITH_INLINE inline void put_lanes(Element* to, const Lanes& x, i64 count) {
  if constexpr (__is_same(Element, f32))
    if (count == kLanes) return x.store(to);
#if defined(MEGALITH_ROUNDS_LANES)
  if constexpr (__is_same(Element, bf16))
    if (count == kLanes) {
      typedef u16 Rounded __attribute__((vector_size(32)));
      Rounded rounded;
      __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x.v));
      __builtin_memcpy(to, &rounded, sizeof rounded);
      return;
    }
#endif
  f32 each[kLanes];
  x.store(each);
  if (count == kLanes) {
#pragma omp simd
    for (i64 l = 0; l < kLanes; ++l) put(to[l], each[l]);
  } else {
    for (i64 l = 0; l < count; ++l) put(to[l], each[l]);
  }
}

/// Asks for 32 elements in a row into the second-level cache.
template <class Element>
MEGALITH_INLINE inline void prefetch_columns(const Element* x) {
  constexpr int kToL2 = 2;
  for (u64 byte = 0; byte < 32 * sizeof(Element); byte += 64)
    __builtin_prefetch(reinterpret_cast<const u8*>(x) + byte, 0, kToL2);
}

/// Asks for what is about to be written.
template <class Element>
MEGALITH_INLINE inline void prefetch_output(Element* to) {
  constexpr int kToWrite = 1;
  __builtin_prefetch(to, kToWrite);
}

}  // namespace megalith::kernels
