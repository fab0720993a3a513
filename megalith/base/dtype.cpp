#include "megalith/base/dtype.h"

#include <bit>
#include <cmath>

#include "megalith/base/error.h"

namespace megalith {

namespace {
struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  double epsilon;
};
constexpr DTypeRow kDTypes[] = {{DType::bf16, "bf16", 2, 1.0 / 256},
                                {DType::f16, "f16", 2, 1.0 / 2048},
                                {DType::f32, "f32", 4, 1.0 / 16777216},
                                {DType::i8, "i8", 1, 0},
                                {DType::i32, "i32", 4, 0},
                                {DType::i64, "i64", 8, 0}};
const DTypeRow& row(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }
}  // namespace

int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }
bool dtype_is_float(DType dtype) { return dtype <= DType::f32; }
double dtype_epsilon(DType dtype) { return row(dtype).epsilon; }

DType dtype_parse(std::string_view name) {
  for (const DTypeRow& r : kDTypes)
    if (r.name == name) return r.dtype;
  throw UserError(fmt::format("unknown dtype \"{}\": known are bf16, f16, f32, i8, i32, i64", name));
}

uint16_t bf16_from_float(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f16_from_float(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
float f16_to_float(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

double element_load(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::bf16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::f16: return f16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::f32: return static_cast<const float*>(data)[index];
    case DType::i8: return static_cast<const int8_t*>(data)[index];
    case DType::i32: return static_cast<const int32_t*>(data)[index];
    case DType::i64: return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  }
  return 0;
}

void element_store(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::bf16: static_cast<uint16_t*>(data)[index] = bf16_from_float(static_cast<float>(value)); break;
    case DType::f16: static_cast<uint16_t*>(data)[index] = f16_from_float(static_cast<float>(value)); break;
    case DType::f32: static_cast<float*>(data)[index] = static_cast<float>(value); break;
    case DType::i8: static_cast<int8_t*>(data)[index] = static_cast<int8_t>(value); break;
    case DType::i32: static_cast<int32_t*>(data)[index] = static_cast<int32_t>(value); break;
    case DType::i64: static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value); break;
  }
}

}  // namespace megalith
