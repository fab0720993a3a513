// How weights lie in a worker's stream (docs/cuda.md): in chunks of 16 KB, each holding a group of rows over a run of
// columns, in the order in which the tensor cores take them. Shared by the host, which plans streams, the kernel that
// packs them, and the bodies that multiply.
//
// One multiply-accumulate of a warp (mma.m16n8k16) takes a tile of 16 x 16 weights and 8 columns of activations. Where
// few rows of activations are in flight the tile is cut into `slices`: with 2, it is 8 rows of weights over two runs of
// columns, and the 8 activation columns are 4 rows over the same two runs. So rows are dealt to workers in groups of 8
// rather than 16, which small models need to keep every worker busy.
//
// A chunk: warp w of 16, step j of 2, lane l (g = l / 4, t = l % 4), 16 bytes each. The warp's columns are 32 per
// slice, from column ((chunk * 16 + w) * slices + slice) * 32 on; lane t holds columns j / 2 * 32 + 8 t + j % 2 * 4 and
// the three after it of each of its two tile rows, g and g + 8, as the four registers of the A operand: (row g: 0 1)
// (row g + 8: 0 1) (row g: 2 3) (row g + 8: 2 3). Any order of columns is as good as another as long as both operands
// have it.
//
// With more rows of activations weights lie as kernels/gemm_layout.h says.
#pragma once

#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"

namespace megalith::stream {

/// Slices with which at most `rows` rows of activations lie (kernels/row_blocks.h), and for how many rows at most so many
/// slices are.
constexpr int slices(long long rows) { return 2 * rows <= kMaxRows ? 2 : 1; }
constexpr int most_rows(int slices) { return static_cast<int>(kMaxRows) / slices; }
constexpr int group_rows(int slices) { return 16 / slices; }
constexpr int chunk_columns(int slices) { return kConsumerWarps * kRunColumns * slices; }
/// Columns past K are zeros.
constexpr long long chunks_per_group(long long columns, int slices) {
  return (columns + chunk_columns(slices) - 1) / chunk_columns(slices);
}

/// Room for the sums of the warps of at most kSumsPerWarp (row of weights, row of activations) pairs.
constexpr int kSumsPerWarp = 256;
constexpr int kSumsBytes = kConsumerWarps * kSumsPerWarp * 4;

/// A warp has its activations in shared memory, or in registers: of at most kMaxHeldChunks chunks of a group, or of
/// kPartChunks at a time while the next ones are on their way. Which, the schedule says (ops/stream_choices.h).
[[maybe_unused]] constexpr long long kMaxHeldChunks = 8, kPartChunks = 2;

/// Groups that are taken through all parts before the next ones are begun: those whose sums there is room for.
constexpr long long groups_per_turn(long long rows, int slices) { return kSumsPerWarp / (group_rows(slices) * rows); }

/// With `part` chunks of a group at a time.
constexpr Order few_order(long long rows, long long columns, int slices, long long part) {
  const long long chunks = chunks_per_group(columns, slices);
  return {slices, group_rows(slices), chunks, part, part < chunks ? groups_per_turn(rows, slices) : 0};
}
/// Shared memory of a multiplication: the sums, and activations if they are there.
constexpr long long few_bytes(long long rows, int slices, long long part, bool registers) {
  return registers ? kSumsBytes : kSumsBytes + rows * part * chunk_columns(slices) * 2;
}

}  // namespace megalith::stream
