// How weights lie in a worker's stream with more than kMaxRows rows of activations. Activations are the first operand of
// a multiplication, 64 rows of it; weights are the second, read by the tensor cores where they lie in the ring (wgmma,
// gemm_mainloop.cuh). A chunk has all rows that are multiplied at a time, 32, 48 or 64, and with more than 128 rows of
// activations also 96 or 128, of one matrix or as many of each of two; its columns are taken 16 a step: for each eight
// rows, step, half k of a step, row: eight columns, 16 bytes. Of two steps' 32 columns number 8 t + 4 (step % 2) + 2 k + i stands at place 2 t + i, which is where kernels/row_blocks.h has it in
// the activations.
#pragma once

#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_order.h"

namespace megalith::stream {

/// Of the four warpgroups each has 64 of at most `rows` rows of activations and a part of a chunk's columns; of the most
/// rows all of them, and sums that nobody adds to.
constexpr int kWideRows = 64;
constexpr int wide_parts(long long rows) {
  return rows > 2 * kWideRows ? 1 : rows > kWideRows ? kMaxParts / 2 : kMaxParts;
}
/// Rows that a chunk may have, the most first.
[[maybe_unused]] constexpr int kWideChunkRows[] = {128, 96, 64, 48, 32};
/// At most with `rows` rows of activations. A warpgroup that has all columns has as many activations for 128 rows as for
/// 64 that it shares.
constexpr int wide_most_chunk_rows(long long rows) { return wide_parts(rows) == 1 ? 128 : 64; }
/// Blocks of activations (kernels/row_blocks.h) that come together where sums stay in registers, and columns of a chunk of
/// `chunk_rows` rows: as many of theirs as there is room for.
[[maybe_unused]] constexpr int kSlotBlocks = 2, kSlotColumns = kSlotBlocks * 32;
constexpr int wide_columns(int chunk_rows) { return kChunkBytes / 2 / chunk_rows / kSlotColumns * kSlotColumns; }
/// From eight rows of weights to the next.
constexpr int wide_block_bytes(int chunk_rows) { return wide_columns(chunk_rows) * 16; }
/// Of `groups` groups those of the next turn, of at most `most`: all turns are alike to within one.
constexpr int wide_turn(int groups, int most) {
  const int turns = (groups + most - 1) / most;
  return (groups + turns - 1) / turns;
}

/// Chunk by chunk of the columns, group by group of a turn of `n_parallel`. Which group and which turn suits a matrix:
/// ops/stream_choices.h.
constexpr Order wide_order(long long columns, int group, int matrices, int n_parallel, bool partners = false) {
  const long long width = wide_columns(group * matrices), taken = partners ? columns / 2 : columns;
  return {0, group, (taken + width - 1) / width, 1, n_parallel, partners};
}

/// Shared memory of a multiplication with many rows: what four warpgroups sum of a turn's rows of weights, with 64 rows
/// of activations each, or each of a group of its own. A row of sums is longer than it need be, so that neighbours are
/// in different banks.
constexpr long long wide_stride(long long turn_rows) { return turn_rows + 8; }
/// Of a warpgroup; where weights come in int8 (kernels/int8_layout.h) a span of them lies there before, in 16 bits.
constexpr long long wide_group_bytes(long long turn_rows, bool int8) {
  const long long sums = kWideRows * wide_stride(turn_rows) * 4;
  return int8 && sums < kChunkBytes ? kChunkBytes : sums;
}
[[maybe_unused]] constexpr long long wide_bytes(long long turn_rows, bool int8 = false) {
  return 4 * wide_group_bytes(turn_rows, int8);
}
/// Slots of activations that are there or on their way where sums stay in registers (pipeline/activation_ring.cuh). With a third
/// beside int8 weights there would be no ring for those.
constexpr int activation_slots(bool int8) { return int8 ? 2 : 3; }
/// Rows that a slot has room for.
constexpr long long slot_rows(long long rows) { return (tile_rows(rows) + kWideRows - 1) / kWideRows * kWideRows; }
constexpr long long activation_ring_bytes(long long rows, bool int8) {
  return activation_slots(int8) * kSlotBlocks * slot_rows(rows) * 64;
}
/// A ring of activations, what of int8 each warpgroup has as floats, and a scale for each row.
constexpr long long wide_widened_at(long long rows) { return activation_ring_bytes(rows, true); }
constexpr long long wide_scales_at(long long rows, bool int8) {
  return activation_ring_bytes(rows, int8) + (int8 ? 4 * kChunkBytes : 0);
}
[[maybe_unused]] constexpr long long wide_own_bytes(long long rows, bool int8) {
  return wide_scales_at(rows, int8) + 4 * tile_rows(rows);
}

/// Where a residual is added to sums that warpgroups have parts of, of 32 rows of weights: behind the sums it.
[[maybe_unused]] constexpr long long wide_residual_bytes(long long rows, bool int8) {
  return wide_bytes(32, int8) + rows * 32 * 4;
}

}  // namespace megalith::stream
