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

/// Slices for at most `rows` rows of activations, and for how many rows at most so many slices are.
constexpr int slices(long long rows) { return 2 * rows <= kMaxRows ? 2 : 1; }
constexpr int most_rows(int slices) { return static_cast<int>(kMaxRows) / slices; }
constexpr int group_rows(int slices) { return 16 / slices; }
constexpr int chunk_columns(int slices) { return kConsumerWarps * kRunColumns * slices; }
/// Columns past K are zeros.
constexpr long long chunks_per_group(long long columns, int slices) {
  return (columns + chunk_columns(slices) - 1) / chunk_columns(slices);
}
/// Slices for rows of so many weights: one where an eighth of what two would bring were those zeros (Qwen3-4B: 2560
/// columns are five chunks of one slice, but three of two, a sixth of them zeros). Rows of activations that do not travel
/// as words lie as slices(rows) says, whatever they are multiplied with.
constexpr int slices(long long rows, long long columns) {
  const int usual = slices(rows);
  if (rows > kMaxRowsOfWords) return usual;
  const long long whole = chunks_per_group(columns, usual) * chunk_columns(usual),
                  single = chunks_per_group(columns, 1) * chunk_columns(1);
  return 8 * single <= 7 * whole ? 1 : usual;
}

/// Room for the sums of the warps of at most kSumsPerWarp (row of weights, row of activations) pairs.
constexpr int kSumsPerWarp = 256;
constexpr int kSumsBytes = kConsumerWarps * kSumsPerWarp * 4;

/// How a warp has its activations: in shared memory; or, of several rows that travel plain, in registers, all of them
/// or a part of the columns while the next part is under way.
enum class Activations { staged, held, parts };
/// Of so many chunks of a group at most, or at a time.
constexpr long long kMaxHeldChunks = 8, kPartChunks = 2;
/// `splits`: columns may be taken in parts.
constexpr Activations activations(long long rows, long long columns, bool splits) {
  if (rows <= kMaxRowsOfWords) return Activations::staged;
  if (chunks_per_group(columns, slices(rows)) <= kMaxHeldChunks) return Activations::held;
  return splits ? Activations::parts : Activations::staged;
}

/// What is in shared memory at a time, where a multiplication may take its columns in parts.
constexpr long long kMaxStagedBytes = 65536;
/// Chunks of a group whose activations are there at a time: all, or as many as fit.
constexpr long long chunks_per_part(long long rows, long long columns, bool splits) {
  const int s = slices(rows, columns);
  const long long all = chunks_per_group(columns, s);
  const Activations form = activations(rows, columns, splits);
  if (form == Activations::held || !splits) return all;
  const long long most = form == Activations::parts ? kPartChunks : kMaxStagedBytes / (rows * chunk_columns(s) * 2);
  return all > most ? most : all;
}
/// Groups that are taken through all parts before the next ones are begun: those whose sums there is room for.
constexpr long long groups_per_turn(long long rows, int slices) { return kSumsPerWarp / (group_rows(slices) * rows); }

/// For few rows of activations; for many, in groups of `group` rows of each of `matrices`.
constexpr Order order(long long rows, long long columns, bool splits) {
  const int s = slices(rows, columns);
  const long long chunks = chunks_per_group(columns, s), part = chunks_per_part(rows, columns, splits);
  return {s, group_rows(s), chunks, part, part < chunks ? groups_per_turn(rows, s) : 0};
}
/// Shared memory of a streaming multiplication: the sums, and activations of `rows` rows if they are there.
constexpr long long scratch_bytes(long long rows, long long columns, bool splits) {
  if (activations(rows, columns, splits) != Activations::staged) return kSumsBytes;
  return kSumsBytes + rows * chunks_per_part(rows, columns, splits) * chunk_columns(slices(rows, columns)) * 2;
}

}  // namespace megalith::stream
