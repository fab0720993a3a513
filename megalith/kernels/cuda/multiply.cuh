// y[t, n] = sum over k of x[t, k] * weight[n, k], for a few rows of activations, with weights from the stream: what
// decoding spends its time on. Three parts, with a barrier of the block between them:
//
//   stage      activations into shared memory as bf16, times the norm's weight; their squares summed on the way
//   multiply   each warp a share of the columns of every row of weights, by tensor cores (kernels/stream_layout.h)
//   sums       of the 16 warps, in order; then the epilogue, one thread for each result
//
// All order of summation follows from the layout, never from who is first: the same bits every run.
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

/// A multiplication of `kRows` rows of activations at most with rows of kColumns weights. Lives in the worker's area.
template <i64 kRows, i64 kColumns>
class Multiply {
  static constexpr int kSlices = stream::slices(kRows), kGroupRows = stream::group_rows(kSlices);
  static constexpr int kChunks = static_cast<int>(stream::chunks_per_group(kColumns, kSlices));
  static constexpr int kPadded = kChunks * stream::chunk_columns(kSlices);
  static_assert(kColumns % 8 == 0 && kRows <= stream::kMostRows && kWarps == stream::kConsumerWarps);

 public:
  static constexpr int kRowsPerGroup = kGroupRows;

  Multiply(u8* area, u64 chunk, int rows)
      : x_(reinterpret_cast<u32*>(area)),
        sums_(reinterpret_cast<f32*>(area + kRows * kPadded * 2)),
        reader_(chunk),
        rows_(rows) {}

  /// Groups of rows of weights whose sums there is room for at a time.
  int groups_at_a_time() const { return stream::kSumsPerWarp / (kGroupRows * (rows_ > 0 ? rows_ : 1)); }

  /// `x`: [rows, kColumns] of bf16, words or plain. With kNorm, of `norm` [kColumns]: activations are multiplied with
  /// it, and scale(t) is then what rmsnorm multiplies with besides.
  template <bool kNorm, class X>
  void stage(X x, const bf16* norm, f32 eps, Epoch epoch) {
    for (int t = 0; t < rows_; ++t) {
      f32 squares = 0;
      stage_row<kNorm>(x, static_cast<i64>(t) * kColumns, x_ + t * kPadded / 2, norm, epoch, squares);
      if constexpr (kNorm) {
        squares = warp_all(squares, Add{});
        if (lane() == 0) multiply_squares[t][warp()] = squares;
      }
    }
    if constexpr (kPadded > kColumns)
      for (int t = 0; t < rows_; ++t)
        for (int i = thread(); i < (kPadded - kColumns) / 2; i += kThreads)
          x_[(t * kPadded + kColumns) / 2 + i] = 0;
    block_sync();
    if constexpr (kNorm) {
      if (warp() < rows_) {
        f32 total = lane() < kWarps ? multiply_squares[warp()][lane()] : 0.0f;
        total = warp_all(total, Add{});
        if (lane() == 0) multiply_scale[warp()] = rsqrt(total / static_cast<f32>(kColumns) + eps);
      }
    }
  }
  /// After groups().
  f32 scale(int t) const { return multiply_scale[t]; }

  /// The next `count` groups of the stream, at most groups_at_a_time(). Ends with a barrier of the block.
  void groups(int count) {
    const int t4 = lane() % 4, g = lane() / 4;
    const int row = kSlices == 2 ? g / 2 : g, slice = kSlices == 2 ? g % 2 : 0;
    const bool active = row < rows_;
    const u32* const x =
        x_ + (row * kPadded + (warp() * kSlices + slice) * stream::kRunColumns + 8 * t4) / 2;
    f32* const sums = sums_ + warp() * stream::kSumsPerWarp;
    const int stride = count * kGroupRows;
    for (int group = 0; group < count; ++group) {
      f32 even[4] = {}, odd[4] = {};
#pragma unroll 4
      for (int c = 0; c < kChunks; ++c) {
        uint4 b = {0, 0, 0, 0};
        if (active) b = *reinterpret_cast<const uint4*>(x + c * (stream::chunk_columns(kSlices) / 2));
        const u8* const chunk = reader_.wait() + warp() * 1024 + lane() * 16;
        const uint4 a0 = *reinterpret_cast<const uint4*>(chunk), a1 = *reinterpret_cast<const uint4*>(chunk + 512);
        multiply_accumulate(even, a0, b.x, b.y);
        multiply_accumulate(odd, a1, b.z, b.w);
        reader_.next();
      }
      f32* const to = sums + group * kGroupRows + g;
      if constexpr (kSlices == 2) {
        // Rows 0-7 of the tile are slice 0, whose activations are the even columns; rows 8-15 slice 1, the odd ones.
        if (t4 < rows_) to[t4 * stride] = even[0] + odd[0] + (even[3] + odd[3]);
      } else {
        if (2 * t4 < rows_) {
          to[2 * t4 * stride] = even[0] + odd[0];
          to[2 * t4 * stride + 8] = even[2] + odd[2];
        }
        if (2 * t4 + 1 < rows_) {
          to[(2 * t4 + 1) * stride] = even[1] + odd[1];
          to[(2 * t4 + 1) * stride + 8] = even[3] + odd[3];
        }
      }
    }
    block_sync();
  }

  /// Of groups(count): the sums for the places from `n` on, of count * kRowsPerGroup, for row t of the activations.
  float2 sum2(int count, int t, int n) const {
    const f32* const from = sums_ + t * count * kGroupRows + n;
    float2 total = {0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 one = *reinterpret_cast<const float2*>(from + w * stream::kSumsPerWarp);
      total.x += one.x;
      total.y += one.y;
    }
    return total;
  }
  float4 sum4(int count, int t, int n) const {
    const f32* const from = sums_ + t * count * kGroupRows + n;
    float4 total = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float4 one = *reinterpret_cast<const float4*>(from + w * stream::kSumsPerWarp);
      total.x += one.x;
      total.y += one.y;
      total.z += one.z;
      total.w += one.w;
    }
    return total;
  }

 private:
  template <bool kNorm, class X>
  void stage_row(X x, i64 first, u32* to, const bf16* norm, Epoch epoch, f32& squares) {
    constexpr int kPieces = kColumns / 4, kMostInFlight = 4;
    constexpr int kPerThread = (kPieces + kThreads - 1) / kThreads;
    constexpr int kInFlight = kPerThread < kMostInFlight ? kPerThread : kMostInFlight;
    for (int base = thread(); base < kPieces; base += kInFlight * kThreads) {
      decltype(look(x, i64(0))) seen[kInFlight];
      uint2 factors[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int piece = base + i * kThreads;
        if (piece >= kPieces) break;
        seen[i] = look(x, first + piece * 4);
        if constexpr (kNorm) factors[i] = __ldg(reinterpret_cast<const uint2*>(norm) + piece);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int piece = base + i * kThreads;
        if (piece >= kPieces) break;
        Four four = get(seen[i], epoch);
        if constexpr (kNorm) {
          const f32 a = low_f32(four.low), b = high_f32(four.low), c = low_f32(four.high), d = high_f32(four.high);
          squares += a * a + b * b + (c * c + d * d);
          four.low = pack_bf16(a * low_f32(factors[i].x), b * high_f32(factors[i].x));
          four.high = pack_bf16(c * low_f32(factors[i].y), d * high_f32(factors[i].y));
        }
        *reinterpret_cast<uint2*>(to + piece * 2) = make_uint2(four.low, four.high);
      }
    }
  }

  u32* x_;     // [rows, kPadded] bf16, two a word
  f32* sums_;  // [warps, kSumsPerWarp]
  RingReader reader_;
  int rows_;
};

}  // namespace megalith::kernels
