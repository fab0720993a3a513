// Two floats of 16 bits in a register, as tensor cores take them: bf16, or f16 where a model's weights are f16.
//
// f16 ends at 65504. A value beyond it becomes the largest one instead of infinity, and what may well be larger travels
// smaller (kernels/half_range.h).
#pragma once

#include "megalith/kernels/cuda/common/prelude.cuh"
#include "megalith/kernels/half_range.h"

namespace megalith::kernels {

inline f32 low_f32(u32 pair) { return __builtin_bit_cast(f32, pair << 16); }
inline f32 high_f32(u32 pair) { return __builtin_bit_cast(f32, pair & 0xffff0000u); }

/// What `T` does with them. `kNormed`: the part of an activation times a norm's weight that is multiplied before the
/// norm's scale is known.
template <class T>
struct Pair;
template <>
struct Pair<bf16> {
  static constexpr f32 kNormed = 1;
  static u32 of(f32 low, f32 high) { return pack_bf16(low, high); }
  static f32 low(u32 pair) { return low_f32(pair); }
  static f32 high(u32 pair) { return high_f32(pair); }
};
template <>
struct Pair<f16> {
  static constexpr f32 kNormed = half_range::kNormed;
  static u32 of(f32 low, f32 high) { return pack_f16(low, high); }
  static f32 low(u32 pair) { return low_of_f16(pair); }
  static f32 high(u32 pair) { return high_of_f16(pair); }
};

/// bf16 or f16.
template <class T>
concept Half = requires {
  Pair<T>::kNormed;
};

}  // namespace megalith::kernels
