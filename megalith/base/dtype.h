// Element types of tensors: their names, sizes, and the conversions of the two 16-bit floats.
#pragma once

#include <cstdint>
#include <string_view>

namespace megalith {

enum class DType : uint8_t { bf16, f16, f32, i8, i32, i64 };

/// Bytes of one element.
int64_t dtype_bytes(DType dtype);
/// "bf16", "f16", "f32", "i8", "i32", "i64".
std::string_view dtype_name(DType dtype);
/// The dtype of that name; UserError naming the known ones otherwise.
DType dtype_parse(std::string_view name);
bool dtype_is_float(DType dtype);
/// bf16 or f16: what tensor cores multiply.
constexpr bool dtype_is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
/// Largest relative error of rounding to this type (half a unit in the last place); 0 for integers.
double dtype_epsilon(DType dtype);

/// Round to nearest, ties to even; NaN stays NaN.
uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t bits);
uint16_t f16_from_float(float value);
float f16_to_float(uint16_t bits);

/// Element `index` of an array of `dtype`, as a double (i64 beyond 2^53 loses its low bits).
double element_load(const void* data, DType dtype, int64_t index);
void element_store(void* data, DType dtype, int64_t index, double value);

}  // namespace megalith
