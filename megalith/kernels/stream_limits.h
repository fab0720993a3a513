// What every part of a worker's stream of weights agrees on: the size of a weight tile, the warps that multiply, and how
// many tokens each family of bodies takes. The rest is split by who needs it: stream_layout.h (small M), gemm_layout.h
// (large M), stream_order.h (which tile comes when), shared_budget.h (shared memory and its ring), l2_layout.h (the two
// partitions of the L2). A change of a constant rebuilds what depends on it and no more.
#pragma once

namespace megalith::stream {

constexpr int kChunkBytes = 16384;
constexpr int kConsumerWarps = 16;
/// Columns of one slice that a warp takes from a chunk.
constexpr int kRunColumns = 32;

/// Most rows of activations that the streaming bodies for few of them take, and those for many.
[[maybe_unused]] constexpr long long kMaxRows = 8;
[[maybe_unused]] constexpr long long kMaxWideRows = 2048;
/// Rows of activations that a task multiplies at most: of more rows there are several tasks for the same weights.
constexpr long long kTileRows = 256;
constexpr long long tile_rows(long long rows) { return rows < kTileRows ? rows : kTileRows; }
/// Activations of more rows travel plain (optimize/schedule.cpp).
constexpr long long kMaxRowsOfWords = 2;

}  // namespace megalith::stream
