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
#pragma once

namespace megalith::stream {

constexpr int kChunkBytes = 16384;
constexpr int kConsumerWarps = 16;
/// Columns of one slice that a warp takes from a chunk.
constexpr int kRunColumns = 32;

/// Slices for at most `rows` rows of activations.
constexpr int slices(long long rows) { return rows <= 4 ? 2 : 1; }
/// Most rows of activations that the streaming bodies take.
[[maybe_unused]] constexpr long long kMostRows = 8;
constexpr int group_rows(int slices) { return 16 / slices; }
constexpr int chunk_columns(int slices) { return kConsumerWarps * kRunColumns * slices; }
/// Columns past K are zeros.
constexpr long long chunks_per_group(long long columns, int slices) {
  return (columns + chunk_columns(slices) - 1) / chunk_columns(slices);
}

/// Shared memory that is no ring and no scratch: frames, barriers, sums of reductions.
constexpr long long kReservedBytes = 8192;
/// Slots of the ring in `shared_bytes` of shared memory, beside `scratch_bytes`: as many as there is room for, 0 if
/// that is less than 2. What is in the ring when a worker begins to wait is what memory does meanwhile.
constexpr int ring_slots(long long shared_bytes, long long scratch_bytes) {
  const long long slots = (shared_bytes - kReservedBytes - scratch_bytes) / kChunkBytes;
  return slots >= 12 ? 12 : slots >= 2 ? static_cast<int>(slots) : 0;
}

/// One chunk of a stream, for the kernel that lays it out: `num_rows` rows of a matrix from `first_row` on, over chunk
/// `column_chunk` of the columns.
struct PackRecord {
  const unsigned short* weights;  // [rows, columns] of bf16
  unsigned long long chunk;       // counted from the start of all streams
  unsigned long long columns, first_row;
  unsigned int num_rows, column_chunk, slices;
};

/// Room for the sums of the warps of at most kSumsPerWarp (row of weights, row of activations) pairs.
constexpr int kSumsPerWarp = 256;
constexpr int kSumsBytes = kConsumerWarps * kSumsPerWarp * 4;

/// Activations that are in shared memory at a time, where a multiplication may take its columns in parts.
constexpr long long kMostStagedBytes = 65536;
/// Chunks of a group whose activations are there at a time: all, or as many as fit.
constexpr long long chunks_per_part(long long rows, long long columns, bool splits) {
  const int s = slices(rows);
  const long long all = chunks_per_group(columns, s), most = kMostStagedBytes / (rows * chunk_columns(s) * 2);
  return splits && all > most ? most : all;
}
/// Groups that are taken through all parts before the next ones are begun: those whose sums there is room for.
constexpr long long groups_per_turn(long long rows) { return kSumsPerWarp / (group_rows(slices(rows)) * rows); }

/// Shared memory of a streaming multiplication: the sums, and activations of `rows` rows.
constexpr long long scratch_bytes(long long rows, long long columns, bool splits) {
  return kSumsBytes + rows * chunks_per_part(rows, columns, splits) * chunk_columns(slices(rows)) * 2;
}

}  // namespace megalith::stream
