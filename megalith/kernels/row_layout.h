// How many rows of activations lie packed for a matrix product, and how (kernels/cpu/gemm.h): in blocks of a few rows,
// and within a block run after run of 16 columns, the block's rows side by side. What a block needs next is what stands
// next, so rows whose lengths are large powers of two do not fight for the same few places of a cache. Freestanding.
#pragma once

namespace megalith::rows {

/// Columns that lie together for each row. Rows are padded with zeros to whole runs.
constexpr int kRun = 16;
/// Rows of a block at most, whatever the machine.
constexpr int kBlock = 12;
/// Fewer rows than this are left to kernels/cpu/gemv.h: packing them takes as long as it saves.
constexpr int kFewest = 5;

constexpr long long runs(long long columns) { return (columns + kRun - 1) / kRun; }
constexpr long long packed_row_elements(long long columns) { return runs(columns) * kRun; }

/// Rows that are packed and worked on together, of `rows`: so many that they stay in a second-level cache of 1 MB beside
/// the weights that pass by, and the weights come from memory for as many of them as can be.
constexpr long long together(long long rows, long long columns) {
  constexpr long long kBytes = 512 << 10;
  const long long fit = kBytes / (packed_row_elements(columns) * 4) / kBlock * kBlock;
  const long long wanted = fit < kBlock ? kBlock : fit;
  return rows < wanted ? rows : wanted;
}

}  // namespace megalith::rows
