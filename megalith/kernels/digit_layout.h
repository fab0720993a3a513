// How rows of activations lie as digits, for products with weights in int8 (kernels/cpu/digits.h), and how many of them
// are worked on together. Shared by the host, which sees to it that there is room, and the bodies. Freestanding.
#pragma once

#include "megalith/kernels/row_layout.h"

namespace megalith::digit_layout {

/// Of each row: of eight bits, the lowest digits first; or of 16 bits, the low ones of even columns, those of odd ones,
/// the high ones of even columns, those of odd ones.
constexpr int kPlanes = 4;
/// Columns in a word of digits.
constexpr int kQuad = 4;
/// Most columns of a block: 256 * 128 * 2^15 is the largest sum that an i32 holds.
constexpr long long kMaxColumns = 256;
/// Of what the columns of a block have in common.
constexpr long long kBlockBytes = 20;

constexpr long long row_words(long long columns) { return kPlanes * ((columns + kQuad - 1) / kQuad); }
constexpr long long blocks_of_group(long long group) { return (group + kMaxColumns - 1) / kMaxColumns; }
constexpr long long row_blocks(long long columns, long long group) {
  return (columns + group - 1) / group * blocks_of_group(group);
}
/// As many rows as stay in a second-level cache beside the weights, a multiple of `step`; of long ones a few.
constexpr long long together(long long rows, long long columns, long long group, long long step) {
  constexpr long long kBytes = 256 << 10;
  const long long fitting = kBytes / (row_words(columns) * 4 + row_blocks(columns, group) * kBlockBytes) / step * step;
  const long long most = fitting > rows::kStaged ? fitting : rows::kStaged;
  return rows < most ? rows : most;
}
/// Room for that many, whatever the step.
constexpr long long bytes(long long rows, long long columns, long long group) {
  return together(rows, columns, group, 1) * (row_words(columns) * 4 + row_blocks(columns, group) * kBlockBytes) + 64;
}

}  // namespace megalith::digit_layout
