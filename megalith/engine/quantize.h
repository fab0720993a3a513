// Matrices of floats as whole numbers of eight bits with a scale for each row and group of columns
// (graph::Graph::split_scales()): done once, while weights are read.
#pragma once

#include <cstdint>

#include "megalith/base/dtype.h"

namespace megalith::engine {

/// Rows [begin, end) of `from`, a float matrix of `columns` columns. Of each group of `group_columns` the largest
/// magnitude becomes 127 times the scale, rounded to bf16; every element is then the nearest multiple of it, at most
/// half a scale away. `to`: [rows, columns]; `scale`: [rows, groups] of bf16.
void quantize_rows(int8_t* to, uint16_t* scale, const void* from, DType dtype, int64_t columns, int64_t group_columns,
                   int64_t begin, int64_t end);

}  // namespace megalith::engine
