// Weights as a checkpoint has them, row by row, into a chunk of a stream (kernels/stream_layout.h). Runs once, when a
// model is loaded.
#pragma once

#include "megalith/kernels/cuda/ring.cuh"

namespace megalith::kernels {

inline void pack_chunk(u8* streams, const stream::PackRecord& record) {
  const int slices = static_cast<int>(record.slices), group_rows = stream::group_rows(slices);
  // Two bf16 of a row; zeros outside.
  auto pair = [&](int row, i64 column) -> u32 {
    if (row >= static_cast<int>(record.num_rows) || column >= static_cast<i64>(record.columns)) return 0;
    return *reinterpret_cast<const u32*>(record.weights + (record.first_row + row) * record.columns + column);
  };
  uint4* const to = reinterpret_cast<uint4*>(streams + record.chunk * stream::kChunkBytes);
  for (int piece = static_cast<int>(threadIdx.x); piece < stream::kChunkBytes / 16;
       piece += static_cast<int>(blockDim.x)) {
    constexpr int kSteps = stream::kRunColumns / 16;
    const int of_lane = piece % 32, step = piece / 32 % kSteps, of_warp = piece / (32 * kSteps);
    const int g = of_lane / 4, t = of_lane % 4;
    auto column = [&](int slice) {
      return ((i64(record.column_chunk) * stream::kConsumerWarps + of_warp) * slices + slice) * stream::kRunColumns +
             step / 2 * 32 + 8 * t + step % 2 * 4;
    };
    // Tile row g + 8: the next eight rows, or the same eight in the second slice.
    const int low_row = group_rows == 16 ? g + 8 : g;
    const i64 a = column(0), b = column(slices - 1);
    to[piece] = {pair(g, a), pair(low_row, b), pair(g, a + 2), pair(low_row, b + 2)};
  }
}

}  // namespace megalith::kernels
