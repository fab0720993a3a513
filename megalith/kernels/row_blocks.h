// Activations in blocks, as the tensor cores take several rows of them: a lane loads 16 bytes, side by side with what
// the warp's other lanes load, and has its share of an operand. Shared with the host, which reads such tensors back.
//
// Of few rows (mainloop/gemv_activations.cuh) blocks are as wide as what a warp has of a chunk of weights, one behind
// the other; in each, row by row, columns in order.
//
// Of many (gemm_mainloop.cuh) they are the first operand, 16 rows over 16 columns a warp. Blocks of 32 columns one
// behind the other; in each, for every 16 rows, two steps of 16 columns; in a step, for each lane (g = lane / 4, t =
// lane % 4), four pairs: of row g and row g + 8 columns 8 t + 4 step and the next, then the two after those. The order
// of columns within a block is that of the weights (kernels/stream_layout.h).
//
// Of more than 128 (gemm_own_rows.cuh) the tensor cores read them out of shared memory, as they read weights
// (gemm_layout.h): in a block of 32 columns, for every eight rows, two steps, half k of a step, row: 16 bytes.
#pragma once

#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::row_blocks {

constexpr int kRows = 16, kColumns = 32;

/// Columns of a block of few rows.
constexpr int few_columns(long long rows) { return stream::slices(rows) * stream::kRunColumns; }

constexpr bool fits(long long rows, long long columns) {
  return rows <= stream::kMaxRows ? columns % few_columns(rows) == 0 : rows % kRows == 0 && columns % kColumns == 0;
}

/// Whether `rows` of them are read by the tensor cores.
constexpr bool are_shared(long long rows) { return stream::wide_parts(rows) == 1; }

/// Where element [row, column] of a tensor of `rows` rows stands. Unsigned and short: on a GPU that is a dozen
/// instructions, and a hundred if it is neither.
constexpr unsigned index(unsigned row, unsigned column, unsigned rows) {
  if (rows <= stream::kMaxRows) {
    const unsigned width = few_columns(rows);
    return (column / width * rows + row) * width + column % width;
  }
  const unsigned block = column / kColumns * (rows / kRows) + row / kRows;
  const unsigned step = column / 4 % 2, lane = row % 8 * 4 + column / 8 % 4;
  if (are_shared(rows))
    return block * 512 + row / 8 % 2 * 256 + step * 128 + column / 2 % 2 * 64 + lane * 2 + column % 2;
  return ((block * 2 + step) * 32 + lane) * 8 + column / 2 % 2 * 4 + row / 8 % 2 * 2 + column % 2;
}

}  // namespace megalith::row_blocks
