// NVRTC lacks GCC's names for a few operations that kernels/cpu/prelude.h is written in; here they are, for the device.
#pragma once

#if defined(__CUDACC_RTC__)
constexpr float __builtin_inff() { return __builtin_bit_cast(float, 0x7f800000u); }
constexpr float __builtin_nanf(const char*) { return __builtin_bit_cast(float, 0x7fc00000u); }
inline float __builtin_fmaf(float a, float b, float c) { return __fmaf_rn(a, b, c); }
inline double __builtin_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
inline float __builtin_fabsf(float x) { return fabsf(x); }
inline float __builtin_floorf(float x) { return floorf(x); }
inline float __builtin_sqrtf(float x) { return __fsqrt_rn(x); }
// Not by copysignf(), which is made of this one.
inline float __builtin_copysignf(float x, float sign) {
  return __builtin_bit_cast(
      float, (__builtin_bit_cast(unsigned, x) & 0x7fffffffu) | (__builtin_bit_cast(unsigned, sign) & 0x80000000u));
}
#endif
