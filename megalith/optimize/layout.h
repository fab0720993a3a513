// What a layout comes to in bytes.
#pragma once

#include "megalith/base/dtype.h"
#include "megalith/kernels/panel_layout.h"

namespace megalith::optimize {

/// Columns of a matrix in panels that stand together for each row.
constexpr int panel_columns(DType dtype) {
  return dtype == DType::bf16 ? panel::kPair : dtype == DType::i8 ? panel::kQuad : panel::kSingle;
}

}  // namespace megalith::optimize
