// The activations of a projection for few rows on a GPU, as a warp has them: of its own columns alone, times the norm's
// weight, and their squares on the way. One or two rows are staged in shared memory, more of them held in registers
// (stream::Activations). A warp waits for what it has, and for nobody else.
#pragma once

#include "megalith/kernels/cuda/common/reduce.cuh"
#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// Of the squares of a row of activations, each warp's share.
using MultiplySquares = f32[stream::kMaxRows][stream::kConsumerWarps];
inline MultiplySquares& multiply_squares() { return shared_variable<MultiplySquares, place::kSquares, place::kRows>(); }

/// The sums of a multiplication come first in the shared area; behind them lie its activations, or what another body
/// has there.
inline f32* multiply_sums() { return reinterpret_cast<f32*>(shared_area()); }
inline u8* area_behind_sums() { return shared_area() + stream::kSumsBytes; }

/// Where this warp has its columns of row `row`: of each chunk one run after the other, with room for `room` of them.
template <int kSlices>
inline u8* staged(int row, int room) {
  return area_behind_sums() + (row * kWarps + warp()) * (room * kSlices * stream::kRunColumns * 2);
}

/// Of four activations: times the norm's `weights`, their squares added to `squares`. Of f16 a part of the products,
/// which the scale makes up for.
template <class T>
inline uint2 normed(uint2 four, uint2 weights, f32& squares) {
  using Two = Pair<T>;
  const f32 a = Two::low(four.x), b = Two::high(four.x), c = Two::low(four.y), d = Two::high(four.y);
  squares = fma(a, a, fma(b, b, fma(c, c, fma(d, d, squares))));
  const auto part = [](f32 x, f32 weight) { return x * weight * Two::kNormed; };
  return make_uint2(Two::of(part(a, Two::low(weights.x)), part(b, Two::high(weights.x))),
                    Two::of(part(c, Two::low(weights.y)), part(d, Two::high(weights.y))));
}

/// This warp's columns of row t of `x`, words or plain, into the shared area: those of `chunks` chunks from chunk
/// `first_chunk` of a row on, zeros past the last column. With `norm` [columns], activations are multiplied with it and
/// their squares go to multiply_squares. Returns once the warp may read them.
template <int kSlices, class X>
inline void multiply_stage_row(X x, int t, const HalfOf<X>* norm, int columns, int first_chunk, int chunks, int room,
                               Epoch epoch) {
  constexpr int kInFlight = 2;                                             // pieces of four that a thread has under way
  constexpr int kRun = kSlices * stream::kRunColumns, kPieces = kRun / 4;  // of a chunk
  const int pieces = chunks * kPieces;
  u8* const to = staged<kSlices>(t, room);
  f32 squares = 0;
  // Of the lanes' pieces from `first` on: all or none, where a run is as wide as a warp.
  const auto is_there = [&](int first) { return (kPieces % kWarpLanes == 0 ? first : first + lane()) < pieces; };
  const auto column_of = [&](int piece) {
    return ((first_chunk + piece / kPieces) * kWarps + warp()) * kRun + piece % kPieces * 4;
  };
#pragma unroll 1
  for (int base = 0; base < pieces; base += kInFlight * kWarpLanes) {
    Eights<decltype(eight_at(x, 0)), kInFlight> fours;
    uint2 factors[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int piece = base + i * kWarpLanes + lane(), column = column_of(piece);
      factors[i] = make_uint2(0, 0);
      if (is_there(base + i * kWarpLanes) && column < columns) {
        fours.look(i, eight_at(x, t * columns + column));
        if (norm != nullptr) factors[i] = __ldg(reinterpret_cast<const uint2*>(norm + column));
      } else {
        fours.none(i, epoch);
      }
    }
    fours.wait([&](int i) { return eight_at(x, t * columns + column_of(base + i * kWarpLanes + lane())); }, epoch);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (!is_there(base + i * kWarpLanes)) continue;
      uint2 four = fours.get(i);
      if (norm != nullptr) four = normed<HalfOf<X>>(four, factors[i], squares);
      *reinterpret_cast<uint2*>(to + (base + i * kWarpLanes + lane()) * 8) = four;
    }
  }
  if (norm == nullptr) return;
  squares = warp_all(squares, Add{});
  if (lane() == 0) multiply_squares()[t][warp()] = squares;
}

/// The same of several rows: words one after the other, of which there are few (graph::exchanged_tensors()).
template <int kSlices, class T>
inline void multiply_stage_rows(Words<T> x, const T* norm, int rows, int columns, int first_chunk, int chunks, int room,
                                Epoch epoch) {
#pragma unroll 1
  for (int t = 0; t < rows; ++t) multiply_stage_row<kSlices>(x, t, norm, columns, first_chunk, chunks, room, epoch);
}
/// What is plain all at once: a row is asked for before the one before it is looked at.
template <int kSlices, class T>
inline void multiply_stage_rows(const T* x, const T* norm, int rows, int columns, int first_chunk, int chunks, int room,
                                Epoch) {
  constexpr int kMax = stream::most_rows(kSlices);
  constexpr int kRun = kSlices * stream::kRunColumns, kPieces = kRun / 8;  // of eight, of a chunk
  const int pieces = chunks * kPieces;
  f32 squares[kMax] = {};
#pragma unroll 1
  for (int piece = lane(); piece < pieces; piece += kWarpLanes) {
    const int column = ((first_chunk + piece / kPieces) * kWarps + warp()) * kRun + piece % kPieces * 8;
    uint4 eights[kMax], weights = {0, 0, 0, 0};
#pragma unroll
    for (int t = 0; t < kMax; ++t) {
      eights[t] = {0, 0, 0, 0};
      if (t < rows && column < columns) eights[t] = *reinterpret_cast<const uint4*>(x + t * columns + column);
    }
    if (norm != nullptr && column < columns) weights = __ldg(reinterpret_cast<const uint4*>(norm + column));
#pragma unroll
    for (int t = 0; t < kMax; ++t) {
      if (t >= rows) break;
      if (norm != nullptr) {
        const uint2 low = normed<T>(make_uint2(eights[t].x, eights[t].y), make_uint2(weights.x, weights.y), squares[t]);
        const uint2 high =
            normed<T>(make_uint2(eights[t].z, eights[t].w), make_uint2(weights.z, weights.w), squares[t]);
        eights[t] = {low.x, low.y, high.x, high.y};
      }
      *reinterpret_cast<uint4*>(staged<kSlices>(t, room) + piece * 16) = eights[t];
    }
  }
  if (norm == nullptr) return;
#pragma unroll
  for (int t = 0; t < kMax; ++t) {
    const f32 total = warp_all(squares[t], Add{});
    if (lane() == 0) multiply_squares()[t][warp()] = total;
  }
}

/// Of parts that follow each other all have the same `room`, the last one, too: other warps still read what lies behind.
template <int kSlices, class X>
inline void multiply_stage(X x, const HalfOf<X>* norm, int rows, int columns, int first_chunk, int chunks, int room,
                           Epoch epoch) {
  warp_sync();  // what was staged before was read
  multiply_stage_rows<kSlices>(x, norm, rows, columns, first_chunk, chunks, room, epoch);
  warp_sync();
  inputs_are_ready(epoch);
}

/// Of a single row, columns that the lanes of all warps look at with four each; and looks of a lane at most.
constexpr int row_look_columns(int slices) {
  return static_cast<int>(kWarpLanes) * 4 / (slices * stream::kRunColumns) * stream::chunk_columns(slices);
}
inline constexpr int kMaxRowLooks = 8;

/// A single row of activations, words or plain: asked for before all else, since a warp needs a dozen instructions to
/// ask and a hundred to be ready for the answer; then put where multiply_stage() would.
template <int kSlices, class X, int kColumns>
class RowLook {
  // Fours of columns that a lane has: one of each two chunks, or of each four of one slice.
  static constexpr int kRunFours = kSlices * stream::kRunColumns / 4, kStep = row_look_columns(kSlices),
                       kLooks = (kColumns + kStep - 1) / kStep, kUsual = kLooks < 2 ? kLooks : 2,
                       kMore = kLooks - kUsual;
  static_assert(kLooks <= kMaxRowLooks);

 public:
  /// `norm` may be null, as there.
  RowLook(X x, const HalfOf<X>* norm, Epoch epoch) {
    const u32 me = keep(threadIdx.x), lane = me % kWarpLanes, run = kSlices * stream::kRunColumns;
    column_ = static_cast<int>(lane / kRunFours * stream::chunk_columns(kSlices) + me / kWarpLanes * run +
                               lane % kRunFours * 4);
    at_ = eight_at(x, column_);
    look(usual_, at_, column_, epoch);
    if (norm != nullptr)
#pragma unroll
      for (int i = 0; i < kUsual; ++i)
        if (has(column_, i)) factors_[i] = __ldg(reinterpret_cast<const uint2*>(norm + column_ + i * kStep));
  }
  /// Returns once the warp may read them, of `chunks` chunks; finish() is to follow.
  void stage(const HalfOf<X>* norm, int chunks, Epoch epoch) {
    const int lane = kernels::lane();
    u8* const to = staged<kSlices>(0, chunks) + lane * 8;
    const int pieces = chunks * kRunFours - lane;  // from the lane's first on
    const auto put = [&](int i, uint2 four, auto factors) {
      if (i * kWarpLanes >= pieces) return;
      if (norm != nullptr) four = normed<HalfOf<X>>(four, factors(), squares_);
      *reinterpret_cast<uint2*>(to + i * kWarpLanes * 8) = four;
    };
    if constexpr (kMore > 0) {
      const At at = at_ + kUsual * kApart;
      Eights<At, kMore> more;
      look(more, at, column_ + kUsual * kStep, epoch);
      more.wait([&](int i) { return at + i * kApart; }, epoch);
#pragma unroll
      for (int i = 0; i < kMore; ++i)
        put(kUsual + i, more.get(i), [&] {
          return has(column_, kUsual + i) ? __ldg(reinterpret_cast<const uint2*>(norm + column_ + (kUsual + i) * kStep))
                                          : uint2{0, 0};
        });
    }
    usual_.wait([&](int i) { return at_ + i * kApart; }, epoch);
#pragma unroll
    for (int i = 0; i < kUsual; ++i) put(i, usual_.get(i), [&] { return factors_[i]; });
    warp_sync();
  }
  /// The same of a row of one chunk, but its columns stay with the lanes, four each.
  uint2 hold(const HalfOf<X>* norm, Epoch epoch) {
    static_assert(kLooks == 1);
    usual_.wait([&](int) { return at_; }, epoch);
    const uint2 four = usual_.get(0);
    return norm != nullptr ? normed<HalfOf<X>>(four, factors_[0], squares_) : four;
  }
  /// The squares' sum, which nobody wants before the next barrier of the block: beside other work, then, as what a profile
  /// has of it.
  void finish(const HalfOf<X>* norm, Epoch epoch) {
    if (norm != nullptr) {
      const f32 squares = warp_all(squares_, Add{});
      if (lane() == 0) multiply_squares()[0][warp()] = squares;
    }
    inputs_are_ready(epoch);
  }

 private:
  using At = decltype(eight_at(X{}, 0));
  static constexpr int kApart = kStep / 4;  // eights of payload

  /// Whether there is an i-th four, of which the first one is at `column`.
  static bool has(int column, int i) { return kColumns % kStep == 0 || column + i * kStep < kColumns; }
  template <int kCount>
  static void look(Eights<At, kCount>& fours, At at, int column, Epoch epoch) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (has(column, i))
        fours.look(i, at + i * kApart);
      else
        fours.none(i, epoch);
  }

  int column_;
  At at_;
  Eights<At, kUsual> usual_;
  uint2 factors_[kUsual] = {};
  f32 squares_ = 0;
};

/// Whether the next part of the activations is on its way while one is multiplied: elsewhere than on sm_90 the compiler
/// has no registers for it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
inline constexpr bool kHoldsAhead = false;
#else
inline constexpr bool kHoldsAhead = true;
#endif

/// Rows of activations that go straight from the L2 into the registers of multiply_held(): a lane has 16 bytes of each
/// chunk, of the row and the columns that the second operand wants of it. `X`: rows as they are, of which a quarter of
/// a warp reads 64 bytes each; or blocks (kernels/row_blocks.h), of which a warp reads 512 bytes in one piece. With
/// copies under way 64 KB of rows take 1.7 us, of blocks 1.0.
template <int kSlices, int kColumns, class X>
class HeldRows {
  using T = HalfOf<X>;
  static constexpr int kChunkColumns = stream::chunk_columns(kSlices), kLanesOfRow = kSlices * 4;

 public:
  static constexpr int kChunks = static_cast<int>(stream::chunks_per_group(kColumns, kSlices));

  /// `x` [rows, kColumns]. What no row is there for repeats the first one, and nobody looks at what becomes of it.
  HeldRows(X x, int rows) : rows_(rows) {
    const u32 me = keep(threadIdx.x), run = me / kWarpLanes * kSlices + (kSlices == 2 ? me / 4 % 2 : 0);
    row_ = static_cast<int>(me % kWarpLanes) / kLanesOfRow;
    column_ = static_cast<int>(run * stream::kRunColumns + me % 4 * 8);
    from_ = at(x, row_ < rows ? row_ : 0);
  }
  /// From chunk `first` of a row on; zeros past the last column.
  template <int kCount>
  void hold(uint4 (&held)[kCount], int first) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      held[c] = {0, 0, 0, 0};
      if (has(first + c, kChunks % kCount == 0))
        held[c] = *reinterpret_cast<const uint4*>(from_ + (first + c) * kChunkColumns * kRowsOfBlock);
    }
  }
  /// All of them, times `norm` [kColumns], as multiply_stage() has it.
  void hold_normed(uint4 (&held)[kChunks], const T* norm) const {
    hold(held, 0);
    f32 squares = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint4 factors = {0, 0, 0, 0};
      if (has(c, true)) factors = __ldg(reinterpret_cast<const uint4*>(norm + column_ + c * kChunkColumns));
      const uint2 low = normed<T>({held[c].x, held[c].y}, {factors.x, factors.y}, squares);
      const uint2 high = normed<T>({held[c].z, held[c].w}, {factors.z, factors.w}, squares);
      held[c] = {low.x, low.y, high.x, high.y};
    }
#pragma unroll
    for (int apart = 1; apart < kLanesOfRow; apart *= 2) squares += from_lane(squares, apart);
    if (lane() % kLanesOfRow == 0 && row_ < rows_) multiply_squares()[row_][warp()] = squares;
  }

 private:
  template <i64 kRows, i64 kAllColumns>
  static constexpr int rows_of_block(Blocked<const T, kRows, kAllColumns>*) {
    return static_cast<int>(kRows);
  }
  static constexpr int rows_of_block(const void*) { return 1; }
  static constexpr int kRowsOfBlock = rows_of_block(static_cast<X*>(nullptr));

  const T* at(const T* x, int row) const { return x + row * kColumns + column_; }
  template <i64 kRows, i64 kAllColumns>
  const T* at(Blocked<const T, kRows, kAllColumns> x, int row) const {
    return x.at + row_blocks::index(static_cast<u32>(row), static_cast<u32>(column_), kRows);
  }
  bool has(int chunk, bool is_chunk) const {
    return (is_chunk || chunk < kChunks) &&
           (kColumns % kChunkColumns == 0 || chunk * kChunkColumns + column_ < kColumns);
  }

  const T* from_;
  int rows_, row_, column_;
};

/// What rmsnorm multiplies row t with besides its weight; `share_of_column`: 1 / columns. After a barrier of the block
/// behind multiply_stage().
inline f32 multiply_scale(int t, f32 share_of_column, f32 eps) {
  f32 total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w += 4) {
    const float4 of_warps = *reinterpret_cast<const float4*>(&multiply_squares()[t][w]);
    total += (of_warps.x + of_warps.y) + (of_warps.z + of_warps.w);
  }
  return fast_rsqrt(fma(total, share_of_column, eps));
}

/// Of rows whose squares come in `parts` sums each, `squares` [rows, parts]: a few warps a row add up a share of them.
template <int kSlices>
inline void multiply_add_parts(const f32* squares, int parts, int rows) {
  constexpr int kRows = stream::most_rows(kSlices), kLanes = kThreads / kRows;
  const u32 me = keep(threadIdx.x);
  const int row = static_cast<int>(me) / kLanes, first = static_cast<int>(me) % kLanes;
  f32 total = 0;
#pragma unroll 4
  for (int i = first; i < parts; i += kLanes) total += row < rows ? squares[row * parts + i] : 0.0f;
  total = warp_all(total, Add{});
  if (lane() == 0) multiply_squares()[row][warp() % (kLanes / kWarpLanes)] = total;
}
/// multiply_scale() after a barrier of the block behind that.
template <int kSlices>
inline f32 multiply_scale_of_parts(int t, f32 share_of_column, f32 eps) {
  constexpr int kWarpsOfRow = kWarps / stream::most_rows(kSlices);
  f32 total = 0;
#pragma unroll
  for (int w = 0; w < kWarpsOfRow; ++w) total += multiply_squares()[t][w];
  return fast_rsqrt(fma(total, share_of_column, eps));
}

}  // namespace megalith::kernels
