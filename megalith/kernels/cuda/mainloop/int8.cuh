// Weights in int8 with scales (kernels/int8_layout.h): how they are packed when a model is loaded, and how the tensor
// cores get them, which multiply floats of 16 bits. That costs 1.75 instructions a weight of bf16, 1.25 of f16. A whole
// number up to 127 is exact in either.
//
// For few rows of activations sums of a run of 32 columns are scaled in f32: what is multiplied is what a CPU multiplies.
// For many a warpgroup puts a span of weights into shared memory, times their scales, for the tensor cores to read
// (kernels/cuda/mainloop/gemm_mainloop.cuh): that rounds them once more, by at most a 512th of what a weight is.
#pragma once

#include "megalith/kernels/cuda/common/half_pair.cuh"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"

namespace megalith::kernels {

/// A matrix of `T` that a body takes from its stream in int8.
template <Half T>
struct Int8 {
  const T* at;
};

// ---- in the main loop --------------------------------------------------------------------------

/// Numbers 0 and 2 of four bytes as floats: behind the magic digits of a larger number, which then is subtracted.
inline u32 widened(bf16, u32 bytes) {
  // bf16 has 8 bits, one too few: 128 + the lower seven, less 128 or 256.
  return minus_bf16((bytes & 0x007f007fu) | 0x43004300u, (bytes & 0x00800080u) ^ 0x43804380u);
}
inline u32 widened(f16, u32 bytes) { return minus_f16((bytes & 0x00ff00ffu) | 0x64006400u, 0x64806480u); }

/// A scale, twice, as `T` has it; and a product of two pairs.
inline u32 scale_pair(bf16, u32 scale) { return scale; }
inline u32 scale_pair(f16, u32 scale) { return pack_f16(low_f32(scale), high_f32(scale)); }
inline u32 product(bf16, u32 a, u32 b) { return times_bf16(a, b); }
inline u32 product(f16, u32 a, u32 b) { return times_f16(a, b); }

/// to += scale * (16 rows of weights over a run of 32 columns) x. `bytes`, `x`: the lane's share of the weights and of
/// the activations; `scales`: of rows g and g + 8.
template <int kSlices, Half T>
inline void multiply_run(f32 (&to)[4], uint4 bytes, u32 scales, uint4 x) {
  const auto low = [](u32 four) { return widened(T{}, four); };
  const auto high = [](u32 four) { return widened(T{}, four >> 8); };
  f32 sums[4] = {};
  multiply_accumulate(T{}, sums, {low(bytes.x), high(bytes.x), low(bytes.y), high(bytes.y)}, x.x, x.y);
  multiply_accumulate(T{}, sums, {low(bytes.z), high(bytes.z), low(bytes.w), high(bytes.w)}, x.z, x.w);
  const f32 first = low_f32(scales), second = high_f32(scales);
  to[0] = fma(first, sums[0], to[0]);
  to[3] = fma(second, sums[3], to[3]);
  if constexpr (kSlices == 2) return;  // the others are of a slice's weights with the other one's activations
  to[1] = fma(first, sums[1], to[1]);
  to[2] = fma(second, sums[2], to[2]);
}

// ---- when a model is loaded --------------------------------------------------------------------

/// Element [row, column] of the record's rows.
inline f32 pack_value(const stream::PackRecord& record, int row, i64 column) {
  const u16 bits = record.weights[(record.first_row + row) * record.columns + column];
  return record.is_f16 != 0 ? to_f32(f16{bits}) : to_f32(bf16{bits});
}
/// The scale of the columns that share one with `column`; 0 outside. As engine/quantize.cpp has it, to the bit.
inline bf16 pack_scale(const stream::PackRecord& record, int row, i64 column) {
  constexpr f32 kLargest = 127;
  const i64 columns = static_cast<i64>(record.columns), group = record.quant_columns;
  if (row >= static_cast<int>(record.num_rows) || column >= columns) return {0};
  const i64 begin = column / group * group;
  f32 largest = 0;
  for (i64 k = begin; k < min(begin + group, columns); ++k) largest = max(largest, abs(pack_value(record, row, k)));
  return to_bf16(largest / kLargest);
}
/// Its weight `column`, by the inverse of the scale.
inline u32 pack_byte(const stream::PackRecord& record, int row, i64 column, f32 inverse) {
  constexpr f32 kLargest = 127;
  if (row >= static_cast<int>(record.num_rows) || column >= static_cast<i64>(record.columns)) return int8::kZero;
  const f32 scaled = min(kLargest, max(-kLargest, pack_value(record, row, column) * inverse));
  return static_cast<u32>(static_cast<int>(scaled + (scaled < 0 ? -0.5f : 0.5f)) + int8::kZero);
}

/// Where a piece of a chunk is: of which warp, lane and span, and which rows and columns it has.
struct Int8Place {
  int rows[2];
  i64 columns[2];  // the first of 8 each

  Int8Place(const stream::PackRecord& record, int of_warp, int span, int g, int t) {
    const int slices = static_cast<int>(record.slices);
    const auto column = [&](int slice) {
      const i64 run = ((i64(record.column_chunk) * int8::kSpans + span) * stream::kConsumerWarps + of_warp) * slices;
      return (run + slice) * stream::kRunColumns + 8 * t;
    };
    // Tile row g + 8: the next eight rows, or the same eight in the second slice.
    rows[0] = g, rows[1] = slices == 1 ? g + 8 : g;
    columns[0] = column(0), columns[1] = column(slices - 1);
  }
};
/// 16 bytes of a chunk.
inline uint4 pack_int8_piece(const stream::PackRecord& record, int piece) {
  const int of_lane = piece % 32;
  const Int8Place place(record, piece / 32 / int8::kSpans, piece / 32 % int8::kSpans, of_lane / 4, of_lane % 4);
  f32 inverses[2];
  for (int i = 0; i < 2; ++i) {
    const f32 scale = to_f32(pack_scale(record, place.rows[i], place.columns[i]));
    inverses[i] = scale > 0 ? 1 / scale : 0;
  }
  u32 parts[4];
  for (int part = 0; part < 4; ++part) {
    const auto byte = [&](int i, int column) {
      return pack_byte(record, place.rows[i], place.columns[i] + 2 * part + column, inverses[i]);
    };
    parts[part] = byte(0, 0) | byte(1, 0) << 8 | byte(0, 1) << 16 | byte(1, 1) << 24;
  }
  return {parts[0], parts[1], parts[2], parts[3]};
}
/// The same for many rows of activations: two pieces of 8 bytes from piece `piece` on, of a span of `columns` columns of
/// the matrix's rows (pack_wide_piece()).
inline uint4 pack_wide_int8(const stream::PackRecord& record, int columns, int span, int piece) {
  u32 parts[4];
  for (int i = 0; i < 2; ++i) {
    const int of_block = (piece + i) % columns, row = (piece + i) / columns * 8 + of_block % 8;
    const int half = of_block / 8 % 2, step = of_block / 16;
    const i64 column =
        (i64(record.column_chunk) * int8::kSpans + span) * columns + step / 2 * int8::kRun + 4 * (step % 2) + 2 * half;
    const f32 scale = to_f32(pack_scale(record, row, column)), inverse = scale > 0 ? 1 / scale : 0;
    for (int j = 0; j < 2; ++j) {
      const auto byte = [&](int further) { return pack_byte(record, row, column + 16 * j + further, inverse); };
      parts[2 * i + j] = byte(0) | byte(8) << 8 | byte(1) << 16 | byte(9) << 24;
    }
  }
  return {parts[0], parts[1], parts[2], parts[3]};
}
/// The scale of run `run` of the chunk's columns, of the matrix's row `row`.
inline u16 pack_wide_scale(const stream::PackRecord& record, int columns, int run, int row) {
  return pack_scale(record, row, i64(record.column_chunk) * int8::kSpans * columns + run * int8::kRun).bits;
}

/// Two scales of a chunk, of which there are kScaleBytes / 4 pairs.
inline u32 pack_int8_scales(const stream::PackRecord& record, int pair) {
  const Int8Place place(record, pair / 16, pair % int8::kSpans, pair / int8::kSpans % 8, 0);
  const auto scale = [&](int i) { return u32{pack_scale(record, place.rows[i], place.columns[i]).bits}; };
  return scale(0) | scale(1) << 16;
}

}  // namespace megalith::kernels
