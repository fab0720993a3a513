#include "megalith/engine/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace megalith::engine {

namespace {

constexpr float kLargest = 127;

void widen(float* to, const void* from, DType dtype, int64_t begin, int64_t count) {
  if (dtype == DType::bf16) {
    const uint16_t* bits = static_cast<const uint16_t*>(from) + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_float(bits[i]);
  } else if (dtype == DType::f32) {
    std::memcpy(to, static_cast<const float*>(from) + begin, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(element_load(from, dtype, begin + i));
  }
}

}  // namespace

void quantize_rows(int8_t* to, uint16_t* scale, const void* from, DType dtype, int64_t columns, int64_t group_columns,
                   int64_t begin, int64_t end) {
  const int64_t groups = (columns + group_columns - 1) / group_columns;
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t r = begin; r < end; ++r) {
    widen(row.data(), from, dtype, r * columns, columns);
    for (int64_t g = 0; g < groups; ++g) {
      const float* values = row.data() + g * group_columns;
      const int64_t count = std::min(group_columns, columns - g * group_columns);
      float largest = 0;
      for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
      scale[r * groups + g] = bf16_from_float(largest / kLargest);
      // By the scale that is kept; one too small for it rounds to at most 127.5, which is cut.
      const float kept = bf16_to_float(scale[r * groups + g]), inverse = kept > 0 ? 1 / kept : 0;
      int8_t* const out = to + r * columns + g * group_columns;
      for (int64_t i = 0; i < count; ++i) {
        const float scaled = std::min(kLargest, std::max(-kLargest, values[i] * inverse));
        out[i] = static_cast<int8_t>(static_cast<int>(scaled + (scaled < 0 ? -0.5f : 0.5f)));
      }
    }
  }
}

}  // namespace megalith::engine
