// How many rows of activations lie packed for a matrix product, and how (kernels/cpu/gemm.h): in blocks of a few rows,
// and within a block run after run of 16 columns, the block's rows side by side. What a block needs next is what stands
// next, so rows whose lengths are large powers of two do not fight for the same few places of a cache. Freestanding.
#pragma once

namespace megalith::rows {

/// Columns that lie together for each row. Rows are padded with zeros to whole runs.
constexpr int kRun = 16;
/// Rows of a block at most, whatever the machine.
constexpr int kBlock = 12;
/// Few rows of activations that are worked out beforehand, e.g. normalised, before weights are read.
constexpr int kStaged = 16;
/// Fewer rows than this are left to kernels/cpu/gemv.h: packing them takes as long as it saves.
constexpr int kFewest = 5;

constexpr long long runs(long long columns) { return (columns + kRun - 1) / kRun; }
constexpr long long packed_row_elements(long long columns) { return runs(columns) * kRun; }

/// Rows that are packed and worked on together, of `rows`. As many as stay in a second-level cache beside the weights
/// that pass by, 256 KB of them; of long ones more than that, because weights come from memory once for all of them:
/// three blocks while these are no more than 512 KB, and two in any case. On a Sapphire Rapids (2 MB of cache) products
/// of 120 rows of 1024 columns make 156 GFLOP/s with 512 KB, 174 with 256 KB, 165 of 60 rows with 192 KB. Rows in bf16
/// are multiplied twice as fast, so weights have to serve more of them: 512 KB. On a Zen 4 (1 MB) 192 rows of 2048
/// columns and 8192 outputs make 211 GFLOP/s with that, 201 with 256 KB, 212 with 768 KB.
constexpr long long together(long long rows, long long columns, long long element_bytes) {
  const long long row_bytes = packed_row_elements(columns) * element_bytes;
  const long long usual = (element_bytes == 2 ? 512 << 10 : 256 << 10) / row_bytes / kBlock;
  const long long blocks = usual > 3 ? usual : (512 << 10) / row_bytes / kBlock >= 3 ? 3 : 2;
  return rows < blocks * kBlock ? rows : blocks * kBlock;
}

/// Tiles (kernels/cpu/tiles.h): rows and columns of one, and rows of a block.
constexpr int kTileRows = 16, kTileColumns = 32, kTileBlock = 2 * kTileRows;
constexpr long long tile_row_elements(long long columns) {
  return (columns + kTileColumns - 1) / kTileColumns * kTileColumns;
}
/// Rows in tiles that are packed and worked on together, of `rows`: as equal parts as there can be of no more than 1.5
/// MB, since machines with tiles have a second-level cache of 2 MB; whole blocks, and three of them in any case.
constexpr long long in_tiles_together(long long rows, long long columns) {
  const long long blocks = (3 << 19) / (tile_row_elements(columns) * 2 * kTileBlock);
  const long long most = (blocks > 3 ? blocks : 3) * kTileBlock, parts = (rows + most - 1) / most;
  return ((rows + parts - 1) / parts + kTileBlock - 1) / kTileBlock * kTileBlock;
}
/// Room for so many of `rows`, and for the sums of two blocks with two panels.
constexpr long long tile_bytes(long long rows, long long columns) {
  return in_tiles_together(rows, columns) * tile_row_elements(columns) * 2 + 2 * kTileBlock * 2 * 16 * 4;
}

/// Few rows are worked out so many at a time.
constexpr long long staged(long long rows) { return rows < kStaged ? rows : kStaged; }
/// From one of a few rows to the next: columns are taken in pairs.
constexpr long long staged_row_elements(long long columns) { return columns + columns % 2; }

/// Room for `rows` rows before they are multiplied, whether they are packed or just worked out, f32, bf16 or in tiles.
constexpr long long workspace_bytes(long long rows, long long columns) {
  const long long few = staged(rows) * staged_row_elements(columns) * 4;
  if (rows < kFewest) return few;
  const long long row = packed_row_elements(columns), wide = together(rows, columns, 4) * row * 4,
                  narrow = together(rows, columns, 2) * row * 2, in_tiles = tile_bytes(rows, columns),
                  packed = wide > narrow ? wide : narrow, most = packed > in_tiles ? packed : in_tiles;
  return most > few ? most : few;
}

}  // namespace megalith::rows
