// Weights out of panels (kernels/panel_layout.h) as f32 lanes: two columns of 16 rows at a time, whatever they are
// stored as. A bf16 is the upper half of an f32, so a pair of columns is widened by a shift and a mask; f32 products
// then keep all of an activation, and keep up with memory as well: 4 instructions for 64 bytes.
#pragma once

#include "megalith/kernels/cpu/lanes.h"
#include "megalith/kernels/panel_layout.h"

namespace megalith::kernels {

static_assert(panel::kRows == kLanes);

/// An even column and the odd one after it.
struct LanePair {
  Lanes even, odd;
};

#if defined(__AVX512F__) && defined(__AVX512BW__)

MEGALITH_INLINE inline LanePair two_columns(const bf16* at) {
  typedef int Bits __attribute__((vector_size(64), may_alias));
  const Bits bits = *reinterpret_cast<const Bits*>(at);
  return {{reinterpret_cast<Lanes::Vector>(bits << 16)}, {reinterpret_cast<Lanes::Vector>(bits & ~0xffff)}};
}
MEGALITH_INLINE inline Lanes sum(const Lanes& a, const Lanes& b) { return {a.v + b.v}; }
MEGALITH_INLINE inline Lanes times(const Lanes& a, const Lanes& b) { return {a.v * b.v}; }
MEGALITH_INLINE inline Lanes one_column(const f16* at) {
  typedef short Bits __attribute__((vector_size(32), may_alias));
  constexpr int kCurrentRounding = 4;
  return {__builtin_ia32_vcvtph2ps512_mask(*reinterpret_cast<const Bits*>(at), Lanes::Vector{}, static_cast<u16>(-1),
                                           kCurrentRounding)};
}

#elif defined(__AVX2__) && defined(__FMA__)

MEGALITH_INLINE inline LanePair two_columns(const bf16* at) {
  typedef int Bits __attribute__((vector_size(32), may_alias));
  const Bits low = reinterpret_cast<const Bits*>(at)[0], high = reinterpret_cast<const Bits*>(at)[1];
  return {{reinterpret_cast<Lanes::Half>(low << 16), reinterpret_cast<Lanes::Half>(high << 16)},
          {reinterpret_cast<Lanes::Half>(low & ~0xffff), reinterpret_cast<Lanes::Half>(high & ~0xffff)}};
}
MEGALITH_INLINE inline Lanes sum(const Lanes& a, const Lanes& b) { return {a.low + b.low, a.high + b.high}; }
MEGALITH_INLINE inline Lanes times(const Lanes& a, const Lanes& b) { return {a.low * b.low, a.high * b.high}; }
MEGALITH_INLINE inline Lanes one_column(const f16* at) {
#if defined(__F16C__)
  typedef short Bits __attribute__((vector_size(16), may_alias));
  return {__builtin_ia32_vcvtph2ps256(reinterpret_cast<const Bits*>(at)[0]),
          __builtin_ia32_vcvtph2ps256(reinterpret_cast<const Bits*>(at)[1])};
#else
  f32 wide[kLanes];
  for (int l = 0; l < kLanes; ++l) wide[l] = to_f32(at[l]);
  return Lanes::load(wide);
#endif
}

#else

MEGALITH_INLINE inline LanePair two_columns(const bf16* at) {
  LanePair pair;
  for (int l = 0; l < kLanes; ++l) {
    pair.even.v[l] = to_f32(at[2 * l]);
    pair.odd.v[l] = to_f32(at[2 * l + 1]);
  }
  return pair;
}
MEGALITH_INLINE inline Lanes sum(const Lanes& a, const Lanes& b) {
  Lanes result;
  for (int l = 0; l < kLanes; ++l) result.v[l] = a.v[l] + b.v[l];
  return result;
}
MEGALITH_INLINE inline Lanes times(const Lanes& a, const Lanes& b) {
  Lanes result;
  for (int l = 0; l < kLanes; ++l) result.v[l] = a.v[l] * b.v[l];
  return result;
}
MEGALITH_INLINE inline Lanes one_column(const f16* at) {
  Lanes result;
  for (int l = 0; l < kLanes; ++l) result.v[l] = to_f32(at[l]);
  return result;
}

#endif

MEGALITH_INLINE inline Lanes one_column(const f32* at) { return Lanes::load(at); }
/// The last column of an odd number of them; beside it are zeros.
MEGALITH_INLINE inline Lanes one_column(const bf16* at) { return two_columns(at).even; }
template <class Weight>
MEGALITH_INLINE inline LanePair two_columns(const Weight* at) {
  return {one_column(at), one_column(at + kLanes)};
}

/// Columns of a weight that stand together.
template <class Weight>
inline constexpr int kTogether = panel::kSingle;
template <>
inline constexpr int kTogether<bf16> = panel::kPair;
template <>
inline constexpr int kTogether<i8> = panel::kQuad;

}  // namespace megalith::kernels
