// Weights as a checkpoint has them, row by row, into a chunk of a stream (kernels/stream_layout.h). Runs once, when a
// model is loaded.
#pragma once

#include "megalith/kernels/cuda/mainloop/int8.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"

namespace megalith::kernels {

/// Two bf16 of a row; zeros outside.
inline u32 pack_pair(const stream::PackRecord& record, int row, i64 column) {
  if (row >= static_cast<int>(record.num_rows) || column >= static_cast<i64>(record.columns)) return 0;
  return *reinterpret_cast<const u32*>(record.weights + (record.first_row + row) * record.columns + column);
}

/// 16 bytes of a chunk, for few rows of activations.
inline uint4 pack_piece(const stream::PackRecord& record, int piece) {
  constexpr int kSteps = stream::kRunColumns / 16;
  const int slices = static_cast<int>(record.slices), group_rows = stream::group_rows(slices);
  const int of_lane = piece % 32, step = piece / 32 % kSteps, of_warp = piece / (32 * kSteps);
  const int g = of_lane / 4, t = of_lane % 4;
  auto column = [&](int slice) {
    return ((i64(record.column_chunk) * stream::kConsumerWarps + of_warp) * slices + slice) * stream::kRunColumns +
           step / 2 * 32 + 8 * t + step % 2 * 4;
  };
  // Tile row g + 8: the next eight rows, or the same eight in the second slice.
  const int low_row = group_rows == 16 ? g + 8 : g;
  const i64 a = column(0), b = column(slices - 1);
  return {pack_pair(record, g, a), pack_pair(record, low_row, b), pack_pair(record, g, a + 2),
          pack_pair(record, low_row, b + 2)};
}
/// The same for many rows, counted from the matrix's first one.
inline uint4 pack_wide_piece(const stream::PackRecord& record, int columns, int piece) {
  const int of_block = piece % columns;
  const int row = piece / columns * 8 + of_block % 8, half = of_block / 8 % 2, step = of_block / 16;
  const i64 column = i64(record.column_chunk) * columns + step / 2 * 32 + 4 * (step % 2) + 2 * half;
  return {pack_pair(record, row, column), pack_pair(record, row, column + 8), pack_pair(record, row, column + 16),
          pack_pair(record, row, column + 24)};
}

/// `on_sides`: chunks are halves of blocks.
inline void pack_chunk(u8* streams, const stream::PackRecord& record, bool on_sides) {
  const int size = record.slices == 0 ? stream::chunk_size(static_cast<int>(record.group * record.matrices)) : 0;
  const int in_piece = stream::piece_bytes(size) / 16;
  const auto put = [&](int at, uint4 piece) {
    u64 place = record.chunk * stream::kChunkBytes + at * 16;
    if (on_sides)
      place = record.chunk / 2 * stream::kBlockBytes + at % in_piece * 16 +
              stream::half_piece(static_cast<int>(record.chunk % 2), at / in_piece) * stream::kPieceBytes;
    *reinterpret_cast<uint4*>(streams + place) = piece;
  };
  const int first = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
  if constexpr (kScaleBytes > 0)
    if (record.quant_columns > 0 && record.slices == 0) {
      const int rows = static_cast<int>(record.group), chunk_rows = rows * static_cast<int>(record.matrices),
                columns = stream::wide_columns(chunk_rows), pieces = rows / 8 * columns,
                before = static_cast<int>(record.matrix) * pieces, runs = int8::kSpans * columns / int8::kRun;
      for (int i = first; i < int8::kSpans * pieces / 2; i += step) {
        const int span = 2 * i / pieces, piece = 2 * i % pieces;
        put((span * pieces * static_cast<int>(record.matrices) + before + piece) / 2,
            pack_wide_int8(record, columns, span, piece));
      }
      u16* const scales = reinterpret_cast<u16*>(record.scales + record.chunk * kScaleBytes);
      for (int i = first; i < runs * rows; i += step)
        scales[i / rows * chunk_rows + static_cast<int>(record.matrix) * rows + i % rows] =
            pack_wide_scale(record, columns, i / rows, i % rows);
      return;
    }
  if constexpr (kScaleBytes > 0)
    if (record.quant_columns > 0) {
      for (int piece = first; piece < stream::kChunkBytes / 16; piece += step)
        put(piece, pack_int8_piece(record, piece));
      u32* const scales = reinterpret_cast<u32*>(record.scales + record.chunk * kScaleBytes);
      for (int pair = first; pair < kScaleBytes / 4; pair += step) scales[pair] = pack_int8_scales(record, pair);
      return;
    }
  if (record.slices == 0) {
    const int columns = stream::wide_columns(static_cast<int>(record.group * record.matrices)),
              pieces = static_cast<int>(record.group) / 8 * columns, before = static_cast<int>(record.matrix) * pieces;
    for (int piece = first; piece < pieces; piece += step) put(before + piece, pack_wide_piece(record, columns, piece));
  } else {
    for (int piece = first; piece < stream::kChunkBytes / 16; piece += step) put(piece, pack_piece(record, piece));
  }
}

}  // namespace megalith::kernels
