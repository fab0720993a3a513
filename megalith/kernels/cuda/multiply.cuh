// y[t, n] = sum over k of x[t, k] * weight[n, k], for a few rows of activations, with weights from the stream: what
// decoding spends its time on. Three parts, with a barrier of the block between them:
//
//   stage      activations into shared memory as bf16, times the norm's weight; their squares summed on the way
//   multiply   each warp a share of the columns of every row of weights, by tensor cores (kernels/stream_layout.h)
//   sums       of the 16 warps, in order; then the epilogue, one thread for each pair of results
//
// All order of summation follows from the layout, never from who is first: the same bits every run.
//
// A stage of a small model takes a microsecond. So nothing of it may land in local memory: the first-level cache beside
// a full shared memory has 50 bytes a thread, and what falls out of it takes a microsecond to come back. That is why
// these are no functions that are called (the convention saves registers to the stack), why arrays are set before they
// are used under conditions, and why tasks lie in shared memory. It made Qwen3-0.6B 22 % faster on an H200.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/ring.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

/// d += a b: a 16 x 16 of weights, b 16 x 8 of activations (mma, PTX ISA section 9.7.14).
inline void multiply_accumulate(f32 (&d)[4], uint4 a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__shared__ f32 multiply_squares[stream::kMostRows][kWarps], multiply_scale[stream::kMostRows];

/// The sums of a multiplication come first in the shared area and stay the multiplications' own: the last warps read
/// one task's while others begin the next. Behind them lie its activations, or what another body has there.
inline f32* multiply_sums() { return reinterpret_cast<f32*>(shared_area()); }
inline u8* area_behind_sums() { return shared_area() + stream::kSumsBytes; }
inline u32* staged(int row, int padded) { return reinterpret_cast<u32*>(area_behind_sums()) + row * (padded / 2); }

/// `x`: [rows, columns] of bf16, words or plain, into the shared area: of each row `padded` columns from `first_column`
/// on, zeros past the last one.
/// With `norm` [columns], activations are multiplied with it, and multiply_scale[t] is then what rmsnorm multiplies
/// with besides. Ends with a barrier of the block; the scales are there after the next one.
template <class X>
inline void multiply_stage(X x, const bf16* norm, f32 eps, int rows, int columns, int first_column, int padded,
                           Epoch epoch) {
  constexpr int kInFlight = 2;  // pieces of four that a thread has under way
  const int pieces = min(columns - first_column, padded) / 4;
#pragma unroll 1
  for (int t = 0; t < rows; ++t) {
    const int first = t * columns + first_column;
    u32* const to = staged(t, padded);
    f32 squares = 0;
#pragma unroll 1
    for (int base = thread(); base < padded / 4; base += kInFlight * kThreads) {
      Fours<X, kInFlight> fours;
      uint2 factors[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int piece = base + i * kThreads;
        factors[i] = make_uint2(0, 0);
        if (piece < pieces) {
          fours.look(i, x, first + piece * 4);
          if (norm != nullptr) factors[i] = __ldg(reinterpret_cast<const uint2*>(norm) + piece);
        } else {
          fours.none(i, epoch);
        }
      }
      fours.wait([&](int i) { return first + (base + i * kThreads) * 4; }, x, epoch);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int piece = base + i * kThreads;
        uint2 four = fours.get(i);
        if (norm != nullptr) {
          const f32 a = low_f32(four.x), b = high_f32(four.x), c = low_f32(four.y), d = high_f32(four.y);
          squares = fma(a, a, fma(b, b, fma(c, c, fma(d, d, squares))));
          four.x = pack_bf16(a * low_f32(factors[i].x), b * high_f32(factors[i].x));
          four.y = pack_bf16(c * low_f32(factors[i].y), d * high_f32(factors[i].y));
        }
        if (piece < padded / 4) *reinterpret_cast<uint2*>(to + piece * 2) = four;
      }
    }
    if (norm != nullptr) {
      squares = warp_all(squares, Add{});
      if (lane() == 0) multiply_squares[t][warp()] = squares;
    }
  }
  block_sync();
  inputs_are_ready(epoch);
  if (norm != nullptr && warp() < rows) {
    f32 total = multiply_squares[warp()][lane() % kWarps];
#pragma unroll
    for (int apart = kWarps / 2; apart > 0; apart /= 2) total += from_lane(total, apart);
    if (lane() == 0) multiply_scale[warp()] = fast_rsqrt(fast_divide(total, static_cast<f32>(columns)) + eps);
  }
}

/// `count` groups of rows of weights from the stream, `chunks` chunks each, times what multiply_stage() left. The sum
/// of row t of the activations with place n of the count * group_rows rows is, for each warp w, multiply_sums()[w *
/// kSumsPerWarp + t * count * group_rows + n]. With `adds`, to what is there of an earlier part of
/// the columns. Ends with a barrier of the block. Without rows, the chunks are taken and left.
///
/// A chunk by itself is a chain: its barrier, its loads, two multiplications, a sum; some 400 cycles in which little
/// else happens. So a warp takes several chunks at a time, each with sums of its own.
inline void put_sum(f32* to, f32 sum, bool adds) { *to = adds ? *to + sum : sum; }
template <int kSlices>
inline void multiply_groups(u32 first_chunk, int count, int chunks, int rows, int padded, bool adds) {
  constexpr int kGroupRows = stream::group_rows(kSlices), kAtOnce = 2;
  constexpr int kSums = kSlices == 2 ? 1 : 4;  // that a lane has of a group
  const int t4 = lane() % 4, g = lane() / 4;
  const int row = kSlices == 2 ? g / 2 : g, slice = kSlices == 2 ? g % 2 : 0;
  const bool active = row < rows;
  const u32* const x = staged(row, padded) + ((warp() * kSlices + slice) * stream::kRunColumns + 8 * t4) / 2;
  const u8* const mine = dynamic_shared + warp() * 1024 + lane() * 16;
  const int stride = count * kGroupRows, total = count * chunks;
  f32* to = multiply_sums() + warp() * stream::kSumsPerWarp + g;
  f32 sum[kSums] = {};
  int c = 0;  // chunk of the group
#pragma unroll 1
  for (int at = 0; at < total; at += kAtOnce) {
    f32 d[kAtOnce][4];
    int of_group = c;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
      if (at + i < total) {
        const u32 chunk = first_chunk + at + i, slot = chunk % kRingBarriers;
        uint4 b = {0, 0, 0, 0};
        if (active) b = *reinterpret_cast<const uint4*>(x + of_group * (stream::chunk_columns(kSlices) / 2));
        if (++of_group == chunks) of_group = 0;
        barrier_wait(&ring_full[slot], chunk / kRingBarriers & 1);
        const u8* const from = mine + slot * stream::kChunkBytes;
        const uint4 a0 = *reinterpret_cast<const uint4*>(from), a1 = *reinterpret_cast<const uint4*>(from + 512);
        multiply_accumulate(d[i], a0, b.x, b.y);
        multiply_accumulate(d[i], a1, b.z, b.w);
      }
    }
    warp_sync();
    if (lane() < kAtOnce && at + lane() < total)
      barrier_arrive(&ring_empty[(first_chunk + at + lane()) % kRingBarriers]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i >= total) continue;
      if constexpr (kSlices == 2) {
        // Rows 0-7 of the tile are slice 0, whose activations are the even columns; rows 8-15 slice 1, the odd ones.
        sum[0] += d[i][0] + d[i][3];
      } else {
#pragma unroll
        for (int j = 0; j < kSums; ++j) sum[j] += d[i][j];
      }
      if (++c < chunks) continue;
      if constexpr (kSlices == 2) {
        if (t4 < rows) put_sum(to + t4 * stride, sum[0], adds);
      } else {
        if (2 * t4 < rows) {
          put_sum(to + 2 * t4 * stride, sum[0], adds);
          put_sum(to + 2 * t4 * stride + 8, sum[2], adds);
        }
        if (2 * t4 + 1 < rows) {
          put_sum(to + (2 * t4 + 1) * stride, sum[1], adds);
          put_sum(to + (2 * t4 + 1) * stride + 8, sum[3], adds);
        }
      }
#pragma unroll
      for (int j = 0; j < kSums; ++j) sum[j] = 0;
      to += kGroupRows;
      c = 0;
    }
  }
  block_sync();
}

/// The sums of all warps for `Vector` (float2, float4) of places, in the order of the warps.
template <class Vector>
inline Vector multiply_sum(const f32* from) {
  constexpr int kWidth = sizeof(Vector) / sizeof(f32);
  union {
    Vector vector;
    f32 values[kWidth];
  } total = {}, one;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    one.vector = *reinterpret_cast<const Vector*>(from + w * stream::kSumsPerWarp);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) total.values[i] += one.values[i];
  }
  return total.vector;
}

}  // namespace megalith::kernels
