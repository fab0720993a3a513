// y[t, n] = sum over k of x[t, k] * weight[n, k], for a few rows of activations, with weights from the stream: what
// decoding spends its time on. Three parts, with a barrier of the block between them:
//
//   stage      activations into shared memory as bf16, times the norm's weight; their squares summed on the way
//   multiply   each warp a share of the columns of every row of weights, by tensor cores (kernels/stream_layout.h)
//   sums       of the 16 warps, in order; then the epilogue, one thread for each result
//
// All order of summation follows from the layout, never from who is first: the same bits every run.
//
// A stage of a small model takes about a microsecond, in which a scheduler of the SM issues some 2000 instructions for
// its four warps. So what is known when the kernel is compiled (one row of activations, all columns) is written so that
// the compiler knows it, and nothing here may land in local memory.
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

/// A multiplication of `kRows` rows of activations at most with rows of kColumns weights. Works in the shared area.
template <i64 kRows, i64 kColumns>
class Multiply {
  static constexpr int kSlices = stream::slices(kRows), kGroupRows = stream::group_rows(kSlices);
  static constexpr int kChunks = static_cast<int>(stream::chunks_per_group(kColumns, kSlices));
  static constexpr int kPadded = kChunks * stream::chunk_columns(kSlices);
  static_assert(kColumns % 8 == 0 && kRows <= stream::kMostRows && kWarps == stream::kConsumerWarps);

 public:
  static constexpr int kRowsPerGroup = kGroupRows;

  Multiply(u32 chunk, int rows) : reader_(chunk), rows_(kRows == 1 ? 1 : rows) {}

  /// An iteration without rows, as the first one is: what the task would have multiplied is taken and left.
  template <int kStreams>
  static void skip(u32 first_chunk, int n_begin, int n_end) {
    RingReader reader(first_chunk);
    for (int i = (n_end - n_begin + kGroupRows - 1) / kGroupRows * kStreams * kChunks; i > 0; --i) {
      reader.wait();
      reader.next();
    }
  }

  /// Rows of activations: known to the compiler where there is but one.
  int rows() const { return kRows == 1 ? 1 : rows_; }
  /// Groups of rows of weights whose sums there is room for at a time.
  int groups_at_a_time() const { return stream::kSumsPerWarp / (kGroupRows * (kRows == 1 ? 1 : max(rows_, 1))); }

  /// `x`: [rows, kColumns] of bf16, words or plain. With kNorm, of `norm` [kColumns]: activations are multiplied with
  /// it, and scale(t) is then what rmsnorm multiplies with besides.
  template <bool kNorm, class X>
  void stage(X x, const bf16* norm, f32 eps, Epoch epoch) {
    for (int t = 0; t < rows(); ++t) {
      f32 squares = 0;
      stage_row<kNorm>(x, t, norm, epoch, squares);
      if constexpr (kNorm) {
        squares = warp_all(squares, Add{});
        if (lane() == 0) multiply_squares[t][warp()] = squares;
      }
    }
    if constexpr (kPadded > kColumns)
      for (int t = 0; t < rows(); ++t)
        for (int i = thread(); i < (kPadded - kColumns) / 2; i += kThreads)
          activations()[(t * kPadded + kColumns) / 2 + i] = 0;
    block_sync();
    inputs_are_ready();
    if constexpr (kNorm) {
      if (warp() < rows()) {
        f32 total = multiply_squares[warp()][lane() % kWarps];
#pragma unroll
        for (int apart = kWarps / 2; apart > 0; apart /= 2) total += from_lane(total, apart);
        if (lane() == 0) multiply_scale[warp()] = fast_rsqrt(total * (1.0f / static_cast<f32>(kColumns)) + eps);
      }
    }
  }
  /// After groups().
  f32 scale(int t) const { return multiply_scale[t]; }

  /// The next `count` groups of the stream, at most groups_at_a_time(). Ends with a barrier of the block.
  void groups(int count) {
    const int t4 = lane() % 4, g = lane() / 4;
    const int row = kSlices == 2 ? g / 2 : g, slice = kSlices == 2 ? g % 2 : 0;
    const bool active = row < rows();
    const u32* const x =
        activations() + (row * kPadded + (warp() * kSlices + slice) * stream::kRunColumns + 8 * t4) / 2;
    const int place = warp() * 1024 + lane() * 16, stride = count * kGroupRows;
    f32* const to = sums() + warp() * stream::kSumsPerWarp + g;
    for (int group = 0; group < count; ++group) {
      f32 even[4] = {}, odd[4] = {};
#pragma unroll 4
      for (int c = 0; c < kChunks; ++c) {
        uint4 b = {0, 0, 0, 0};
        if (active) b = *reinterpret_cast<const uint4*>(x + c * (stream::chunk_columns(kSlices) / 2));
        const u8* const chunk = reader_.wait() + place;
        const uint4 a0 = *reinterpret_cast<const uint4*>(chunk), a1 = *reinterpret_cast<const uint4*>(chunk + 512);
        multiply_accumulate(even, a0, b.x, b.y);
        multiply_accumulate(odd, a1, b.z, b.w);
        reader_.next();
      }
      const int at = group * kGroupRows;
      if constexpr (kSlices == 2) {
        // Rows 0-7 of the tile are slice 0, whose activations are the even columns; rows 8-15 slice 1, the odd ones.
        if (t4 < rows()) to[at + t4 * stride] = even[0] + odd[0] + (even[3] + odd[3]);
      } else {
        if (2 * t4 < rows()) {
          to[at + 2 * t4 * stride] = even[0] + odd[0];
          to[at + 2 * t4 * stride + 8] = even[2] + odd[2];
        }
        if (2 * t4 + 1 < rows()) {
          to[at + (2 * t4 + 1) * stride] = even[1] + odd[1];
          to[at + (2 * t4 + 1) * stride + 8] = even[3] + odd[3];
        }
      }
    }
    block_sync();
  }

  /// Of groups(count): the sums for the places from `n` on, of count * kRowsPerGroup, for row t of the activations.
  template <class Vector>
  Vector sum(int count, int t, int n) const {
    const f32* const from = sums() + t * count * kGroupRows + n;
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

 private:
  // Taken from the symbol each time, so that the compiler sees that it is shared memory.
  static u32* activations() { return reinterpret_cast<u32*>(shared_area()); }             // [rows, kPadded] bf16
  static f32* sums() { return reinterpret_cast<f32*>(shared_area() + kRows * kPadded * 2); }  // [warps, kSumsPerWarp]

  // Pieces of four: all of a thread's are under way before the first is looked at.
  template <bool kNorm, class X>
  static void stage_row(X x, int t, const bf16* norm, Epoch epoch, f32& squares) {
    constexpr int kPieces = static_cast<int>(kColumns) / 4, kMostInFlight = 6;
    constexpr int kPerThread = (kPieces + kThreads - 1) / kThreads;
    constexpr int kInFlight = kPerThread < kMostInFlight ? kPerThread : kMostInFlight;
    const int first = t * static_cast<int>(kColumns);
    u32* const to = activations() + t * (kPadded / 2);
#pragma unroll
    for (int base = 0; base < kPieces; base += kInFlight * kThreads) {
      uint2 factors[kInFlight];
      Fours<X, kInFlight> fours;
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int piece = base + i * kThreads + thread();
        if (piece < kPieces) {
          fours.look(i, x, first + piece * 4);
          if constexpr (kNorm) factors[i] = __ldg(reinterpret_cast<const uint2*>(norm) + piece);
        } else {
          fours.none(i, epoch);
        }
      }
      fours.wait([&](int i) { return first + (base + i * kThreads + thread()) * 4; }, x, epoch);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int piece = base + i * kThreads + thread();
        if (piece < kPieces) {
          uint2 four = fours.get(i);
          if constexpr (kNorm) {
            const f32 a = low_f32(four.x), b = high_f32(four.x), c = low_f32(four.y), d = high_f32(four.y);
            squares = fma(a, a, squares);
            squares = fma(b, b, squares);
            squares = fma(c, c, squares);
            squares = fma(d, d, squares);
            four.x = pack_bf16(a * low_f32(factors[i].x), b * high_f32(factors[i].x));
            four.y = pack_bf16(c * low_f32(factors[i].y), d * high_f32(factors[i].y));
          }
          *reinterpret_cast<uint2*>(to + piece * 2) = four;
        }
      }
    }
  }

  RingReader reader_;
  int rows_;
};

}  // namespace megalith::kernels
