// What every body on a CPU may use: element types with their conversions, whole-number helpers, and the functions of
// the loop-kernel language in f32. Freestanding: it includes nothing, is compiled into every generated source, and
// compiles on the host as well, where the tests measure it.
//
// The functions are branch-free, so that a loop over them vectorises, and written in exact IEEE operations with
// explicit fused multiply-adds, so that they give the same bits in vector lanes, in a loop's remainder and on every
// machine. That holds only while the compiler neither fuses nor reorders on its own: -ffp-contract=off and no
// -ffast-math (see codegen/emit.h for the flags). The largest errors, in units in the last place, over all f32 or a
// dense sample:
//   exp 1.1, log 0.8, tanh 1.3, sin and cos 1.5 (|x| < 1e9), pow 0.5, rsqrt 1.5, sqrt 0.5
// NaN comes out as NaN, exp(-inf) is 0, exp(inf) and log(inf) are inf, log(0) is -inf, log of less is NaN.
#pragma once

#if defined(__FAST_MATH__)
#error "compile without -ffast-math: results must not depend on how the compiler orders operations"
#endif
#if defined(__clang__)
#pragma clang fp contract(off)
#pragma clang diagnostic ignored "-Wpass-failed"  // of a loop that was to be vectorised: slower, not wrong
#endif

/// Before a loop whose iterations are independent of each other: the compiler need not prove it.
#if defined(__clang__)
#define MEGALITH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define MEGALITH_INDEPENDENT _Pragma("GCC ivdep")
#endif
/// Of a lambda or function that must vanish into the loop that calls it.
#define MEGALITH_INLINE __attribute__((always_inline))
/// Of a large function that many call: compiled once, not again for each caller and what it happens to pass.
#if defined(__clang__) || defined(__CUDACC_RTC__)
#define MEGALITH_SHARED __attribute__((noinline))
#else
#define MEGALITH_SHARED __attribute__((noinline, noclone))
#endif

namespace megalith::kernels {

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

// ---- element types -----------------------------------------------------------------------------

struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

inline f32 to_f32(f32 x) { return x; }
inline f32 to_f32(i8 x) { return static_cast<f32>(x); }
inline f32 to_f32(i32 x) { return static_cast<f32>(x); }
inline f32 to_f32(i64 x) { return static_cast<f32>(x); }
inline f32 to_f32(bf16 x) { return __builtin_bit_cast(f32, static_cast<u32>(x.bits) << 16); }

/// To nearest, ties to even; NaN stays NaN (and quiet).
inline bf16 to_bf16(f32 x) {
  const u32 bits = __builtin_bit_cast(u32, x);
  const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const u32 nan = (bits >> 16) | 0x40;
  return {static_cast<u16>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
}

// _Float16 converts in one instruction where the machine has it; clang before 15 knows the type only with AVX512-FP16.
#if defined(__FLT16_MANT_DIG__) && (!defined(__clang__) || defined(__AVX512FP16__) || __clang_major__ >= 15)
inline f32 to_f32(f16 x) { return static_cast<f32>(__builtin_bit_cast(_Float16, x.bits)); }
inline f16 to_f16(f32 x) { return {__builtin_bit_cast(u16, static_cast<_Float16>(x))}; }
#else
inline f32 to_f32(f16 x) {
  // The exponent is moved into place and rebiased by an exact multiplication, which also normalises subnormals.
  const u32 magnitude = x.bits & 0x7fff;
  const f32 scaled = __builtin_bit_cast(f32, magnitude << 13) * 0x1p112f;
  const u32 special = (magnitude << 13) | 0x7f800000;  // inf and NaN
  const u32 bits = magnitude >= 0x7c00 ? special : __builtin_bit_cast(u32, scaled);
  return __builtin_bit_cast(f32, bits | static_cast<u32>(x.bits & 0x8000) << 16);
}
inline f16 to_f16(f32 x) {
  const u32 sign = (__builtin_bit_cast(u32, x) >> 16) & 0x8000;
  const u32 magnitude = __builtin_bit_cast(u32, x) & 0x7fffffff;
  // Normal results: rebias and round by hand. Subnormal ones: adding 0.5 makes the hardware round at the right bit.
  const u32 normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const u32 subnormal = __builtin_bit_cast(u32, __builtin_bit_cast(f32, magnitude) + 0.5f) - 0x3f000000;
  u32 bits = magnitude < 0x38800000 ? subnormal : normal;
  bits = magnitude >= 0x477ff000 ? 0x7c00 : bits;                                 // rounds to inf, or is it
  bits = magnitude > 0x7f800000 ? (0x7e00 | ((magnitude >> 13) & 0x3ff)) : bits;  // NaN
  return {static_cast<u16>(bits | sign)};
}
#endif

// ---- whole numbers -----------------------------------------------------------------------------

inline constexpr i64 kLowest = -0x7fffffffffffffff - 1, kHighest = 0x7fffffffffffffff;

/// Floor division and its remainder, which has the sign of b; b is not 0. The lowest number over -1 is itself.
inline i64 floord(i64 a, i64 b) {
  if (b == -1) return static_cast<i64>(0 - static_cast<u64>(a));
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
inline i64 mod(i64 a, i64 b) {
  if (b == -1) return 0;
  return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}

/// To a narrower whole number, or from a float towards 0: what is beyond the type becomes the type's last number on that
/// side, and NaN its lowest. None of these is a place in a tensor.
inline i64 to_i64(f32 x) { return x >= 0x1p63f ? kHighest : x >= -0x1p63f ? static_cast<i64>(x) : kLowest; }
inline i32 to_i32(f32 x) { return x >= 0x1p31f ? 0x7fffffff : x >= -0x1p31f ? static_cast<i32>(x) : -0x7fffffff - 1; }
inline i32 to_i32(i64 x) {
  return static_cast<i32>(x < -0x80000000ll ? -0x80000000ll : x > 0x7fffffff ? 0x7fffffff : x);
}
inline i32 to_i32(i32 x) { return x; }
inline i32 to_i8(i32 x) { return x < -128 ? -128 : x > 127 ? 127 : x; }
inline i32 to_i8(i64 x) { return to_i8(to_i32(x)); }
inline i32 to_i8(f32 x) { return to_i8(to_i32(x)); }

// min and max of floats give b unless a compares less (greater): one instruction, and NaN in a is dropped.
inline i64 min(i64 a, i64 b) { return a < b ? a : b; }
inline i64 max(i64 a, i64 b) { return a > b ? a : b; }
inline i64 min(i32 a, i64 b) { return a < b ? a : b; }
inline i64 min(i64 a, i32 b) { return a < b ? a : b; }
inline i64 max(i32 a, i64 b) { return a > b ? a : b; }
inline i64 max(i64 a, i32 b) { return a > b ? a : b; }
inline i32 min(i32 a, i32 b) { return a < b ? a : b; }
inline i32 max(i32 a, i32 b) { return a > b ? a : b; }
inline f32 min(f32 a, f32 b) { return a < b ? a : b; }
inline f32 max(f32 a, f32 b) { return a > b ? a : b; }
inline i64 clamp(i64 x, i64 low, i64 high) { return min(max(x, low), high); }
inline i64 abs(i64 x) { return x < 0 ? -x : x; }
inline i32 abs(i32 x) { return x < 0 ? -x : x; }

// ---- functions ---------------------------------------------------------------------------------

inline constexpr f32 kInfinity = __builtin_inff();

/// a * b + c, rounded once.
inline f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
inline f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
inline f32 abs(f32 x) { return __builtin_fabsf(x); }
inline f32 floor(f32 x) { return __builtin_floorf(x); }
inline f32 sqrt(f32 x) { return __builtin_sqrtf(x); }
inline f32 rsqrt(f32 x) { return 1.0f / __builtin_sqrtf(x); }

/// exp(x) = 2^n e^r with |r| <= ln(2)/2 and a polynomial for e^r. Adding 1.5 * 2^23 rounds to a whole number and leaves
/// it in the low bits. 2^n is applied in two halves, so that it reaches inf and the subnormals by ordinary rounding.
struct Exponential {
  f32 of_rest;  // e^r
  i32 exponent;
};
inline Exponential exponential(f32 x) {
  constexpr f32 kRound = 0x1.8p23f;
  const f32 shifted = fma(x, 0x1.715476p0f, kRound);
  const f32 n = shifted - kRound;
  f32 r = fma(n, -0x1.62e4p-1f, x);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  f32 p = 0x1.6d1606p-10f;
  p = fma(p, r, 0x1.12106cp-7f);
  p = fma(p, r, 0x1.555516p-5f);
  p = fma(p, r, 0x1.5554d8p-3f);
  p = fma(p, r, 0.5f);
  p = fma(p * r, r, r) + 1.0f;
  return {p, static_cast<i32>(__builtin_bit_cast(u32, shifted) - __builtin_bit_cast(u32, kRound))};
}
inline f32 exp(f32 x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const Exponential e = exponential(x);
  const i32 half = e.exponent >> 1;
  const f32 scale_1 = __builtin_bit_cast(f32, static_cast<u32>(half + 127) << 23);
  const f32 scale_2 = __builtin_bit_cast(f32, static_cast<u32>(e.exponent - half + 127) << 23);
  return e.of_rest * scale_1 * scale_2;
}
/// The same, bit by bit, in fewer steps, where |x| <= 80.
inline f32 exp_normal(f32 x) {
  const Exponential e = exponential(x);
  return __builtin_bit_cast(f32, __builtin_bit_cast(u32, e.of_rest) + (static_cast<u32>(e.exponent) << 23));
}

/// log(x) = e ln(2) + 2 atanh(s) with s = (m - 1) / (m + 1), x = 2^e m and m within [sqrt(1/2), sqrt(2)].
inline f32 log(f32 x) {
  const bool small = x < 0x1p-126f;  // subnormals are scaled up first; zero and below are dealt with at the end
  const u32 bits = __builtin_bit_cast(u32, small ? x * 0x1p23f : x);
  const i32 exponent = static_cast<i32>(bits - 0x3f3504f3) >> 23;
  const f32 f = __builtin_bit_cast(f32, bits - (static_cast<u32>(exponent) << 23)) - 1.0f;
  const f32 e = static_cast<f32>(small ? exponent - 23 : exponent);
  const f32 s = f / (2.0f + f);
  const f32 z = s * s;
  f32 p = fma(z, 0x1.c71c72p-3f, 0x1.24924ap-2f);  // 2/9, 2/7
  p = fma(z, p, 0x1.99999ap-2f);                   // 2/5
  p = fma(z, p, 0x1.555556p-1f);                   // 2/3
  // 2 s = f - f s, and f s is small beside f: the leading term stays exact.
  const f32 half_square = 0.5f * f * f;
  const f32 rest = fma(s, fma(z, p, half_square), e * 0x1.7f7d1cp-20f);
  f32 y = fma(e, 0x1.62e4p-1f, f - (half_square - rest));
  y = x == kInfinity ? kInfinity : y;
  y = x == 0.0f ? -kInfinity : y;
  y = x < 0.0f ? __builtin_nanf("") : y;
  return x != x ? x : y;
}

/// 1 - 2 / (e^2|x| + 1), and a polynomial where that cancels.
inline f32 tanh(f32 x) {
  const f32 a = abs(x);
  const f32 large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  const f32 z = x * x;
  f32 p = -0x1.8f8de4p-8f;
  p = fma(p, z, 0x1.58048ep-6f);
  p = fma(p, z, -0x1.b9258ap-5f);
  p = fma(p, z, 0x1.110e1cp-3f);
  p = fma(p, z, -0x1.555552p-2f);
  const f32 small = fma(a * z, p, a);
  return __builtin_copysignf(a < 0.625f ? small : large, x);
}

/// x = quadrant * pi/2 + r. In f64, so that angles of 10^5 (a position in a long context) keep every bit of the f32
/// result.
struct Angle {
  f32 r;
  u32 quadrant;  // only the low two bits mean something
};
inline Angle reduce_angle(f32 x) {
  constexpr f64 kRound = 0x1.8p52;
  const f64 shifted = fma(static_cast<f64>(x), 0x1.45f306dc9c883p-1, kRound);
  const f64 n = shifted - kRound;
  f64 r = fma(n, -0x1.921fb54442d18p0, static_cast<f64>(x));
  r = fma(n, -0x1.1a62633145c07p-54, r);
  return {static_cast<f32>(r), static_cast<u32>(__builtin_bit_cast(u64, shifted))};
}
/// sine (odd quadrants: cosine) of the reduced angle, with its sign: Taylor, to below half a unit within |r| <= pi/4.
inline f32 sine_of(Angle angle) {
  const f32 r = angle.r, z = r * r;
  f32 sine = fma(z, 0x1.71de3ap-19f, -0x1.a01a02p-13f);  // 1/9!, -1/7!
  sine = fma(z, sine, 0x1.111112p-7f);
  sine = fma(z, sine, -0x1.555556p-3f);
  sine = fma(r * z, sine, r);
  f32 cosine = fma(z, -0x1.27e4fcp-22f, 0x1.a01a02p-16f);  // -1/10!, 1/8!
  cosine = fma(z, cosine, -0x1.6c16c2p-10f);
  cosine = fma(z, cosine, 0x1.555556p-5f);
  cosine = fma(z, cosine, -0.5f);
  cosine = fma(z, cosine, 1.0f);
  const f32 value = (angle.quadrant & 1) != 0 ? cosine : sine;
  return __builtin_bit_cast(f32, __builtin_bit_cast(u32, value) ^ ((angle.quadrant & 2) << 30));
}
inline f32 sin(f32 x) { return sine_of(reduce_angle(x)); }
inline f32 cos(f32 x) {
  Angle angle = reduce_angle(x);
  ++angle.quadrant;
  return sine_of(angle);
}

/// x^y = e^(y log x), in f64: an f32 logarithm would lose as many bits as the exponent has.
inline f32 pow(f32 x, f32 y) {
  const f64 a = static_cast<f64>(abs(x));
  const u64 bits = __builtin_bit_cast(u64, a);
  const i64 e = static_cast<i64>(bits - 0x3fe6a09e667f3bcd) >> 52;
  const f64 m = __builtin_bit_cast(f64, bits - (static_cast<u64>(e) << 52));
  const f64 s = (m - 1.0) / (m + 1.0), z = s * s;
  f64 p = fma(z, 2.0 / 17, 2.0 / 15);
  p = fma(z, p, 2.0 / 13);
  p = fma(z, p, 2.0 / 11);
  p = fma(z, p, 2.0 / 9);
  p = fma(z, p, 2.0 / 7);
  p = fma(z, p, 2.0 / 5);
  p = fma(z, p, 2.0 / 3);
  const f64 ln = fma(static_cast<f64>(e), 0x1.62e42fefa39efp-1, fma(s * z, p, 2.0 * s));
  f64 t = static_cast<f64>(y) * (a == 0.0 ? -1e6 : ln);
  t = a == static_cast<f64>(kInfinity) ? static_cast<f64>(y) * 1e6 : t;
  t = t < -200.0 ? -200.0 : t;
  t = t > 200.0 ? 200.0 : t;
  const f64 shifted = fma(t, 0x1.71547652b82fep0, 0x1.8p52);
  const f64 n = shifted - 0x1.8p52;
  const f64 r = fma(n, -0x1.62e42fefa39efp-1, t);
  f64 q = fma(r, 1.0 / 3628800, 1.0 / 362880);
  q = fma(r, q, 1.0 / 40320);
  q = fma(r, q, 1.0 / 5040);
  q = fma(r, q, 1.0 / 720);
  q = fma(r, q, 1.0 / 120);
  q = fma(r, q, 1.0 / 24);
  q = fma(r, q, 1.0 / 6);
  q = fma(r, q, 0.5);
  q = fma(r, q, 1.0);
  q = fma(r, q, 1.0);
  const u64 scale = (__builtin_bit_cast(u64, shifted) - __builtin_bit_cast(u64, 0x1.8p52) + 1023) << 52;
  f32 result = static_cast<f32>(q * __builtin_bit_cast(f64, scale));
  // Of a negative base: whole exponents keep the sign if odd, others have no real power.
  const bool whole = floor(y) == y, odd = whole && floor(0.5f * y) * 2.0f != y;
  result = x < 0.0f ? (whole ? (odd ? -result : result) : __builtin_nanf("")) : result;
  return y == 0.0f || x == 1.0f ? 1.0f : (x != x || y != y ? x + y : result);
}

}  // namespace megalith::kernels
