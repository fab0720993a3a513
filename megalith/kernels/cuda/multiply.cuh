// y[t, n] = sum over k of x[t, k] * weight[n, k], for a few rows of activations, with weights from the stream: what
// decoding spends its time on. A warp has the same columns of every row of weights, so it waits for and stages those
// activations alone, and no barrier stands before the multiplication:
//
//   stage      the warp's activations into shared memory as bf16, times the norm's weight; their squares on the way
//   multiply   with its share of every chunk, by tensor cores (kernels/stream_layout.h)
//   sums       after a barrier of the block: of all warps, in order; then the epilogue, a thread a pair of results
//
// All order of summation follows from the layout, never from who is first: the same bits every run.
//
// A stage of a small model takes a microsecond, so three things count that elsewhere do not:
//   * Nothing may land in local memory: the first-level cache beside a full shared memory has 50 bytes a thread, and
//   what
//     falls out of it takes a microsecond to come back. That is why these are no functions that are called (the
//     convention saves registers to the stack), why arrays are set before they are used under conditions, and why tasks
//     lie in shared memory.
//   * Addresses that a loop uses are worked out once, and kept (keep()): left to itself the compiler works them out
//   again
//     behind every wait.
//   * What is waited for is asked for together: four chunks' barriers, then their loads, then their multiplications.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/ring.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

template <u32 kValue>
struct Constant {
  constexpr operator u32() const { return kValue; }
};

/// Of the squares of a row of activations, each warp's share.
__shared__ __align__(16) f32 multiply_squares[stream::kMostRows][kWarps];

/// The sums of a multiplication come first in the shared area; behind them lie its activations, or what another body
/// has there.
inline f32* multiply_sums() { return reinterpret_cast<f32*>(shared_area()); }
inline u8* area_behind_sums() { return shared_area() + stream::kSumsBytes; }

/// Where this warp has its columns of row `row`: of each of `chunks` chunks one run after the other.
template <int kSlices>
inline u8* staged(int row, int chunks) {
  return area_behind_sums() + (row * kWarps + warp()) * (chunks * kSlices * stream::kRunColumns * 2);
}

/// Of four activations: times the norm's `weights`, their squares added to `squares`.
inline uint2 normed(uint2 four, uint2 weights, f32& squares) {
  const f32 a = low_f32(four.x), b = high_f32(four.x), c = low_f32(four.y), d = high_f32(four.y);
  squares = fma(a, a, fma(b, b, fma(c, c, fma(d, d, squares))));
  return make_uint2(pack_bf16(a * low_f32(weights.x), b * high_f32(weights.x)),
                    pack_bf16(c * low_f32(weights.y), d * high_f32(weights.y)));
}

/// This warp's columns of row t of `x`, words or plain, into the shared area: those of `chunks` chunks from chunk
/// `first_chunk` of a row on, zeros past the last column. With `norm` [columns], activations are multiplied with it and
/// their squares go to multiply_squares. Returns once the warp may read them.
template <int kSlices, class X>
inline void multiply_stage_row(X x, int t, const bf16* norm, int columns, int first_chunk, int chunks, Epoch epoch) {
  constexpr int kInFlight = 2;                                             // pieces of four that a thread has under way
  constexpr int kRun = kSlices * stream::kRunColumns, kPieces = kRun / 4;  // of a chunk
  const int pieces = chunks * kPieces;
  u8* const to = staged<kSlices>(t, chunks);
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
      if (norm != nullptr) four = normed(four, factors[i], squares);
      *reinterpret_cast<uint2*>(to + (base + i * kWarpLanes + lane()) * 8) = four;
    }
  }
  if (norm == nullptr) return;
  squares = warp_all(squares, Add{});
  if (lane() == 0) multiply_squares[t][warp()] = squares;
}

/// The same of several rows: words one after the other, of which there are few (graph::exchanged_tensors()).
template <int kSlices>
inline void multiply_stage_rows(Words<bf16> x, const bf16* norm, int rows, int columns, int first_chunk, int chunks,
                                Epoch epoch) {
#pragma unroll 1
  for (int t = 0; t < rows; ++t) multiply_stage_row<kSlices>(x, t, norm, columns, first_chunk, chunks, epoch);
}
/// What is plain all at once: a row is asked for before the one before it is looked at.
template <int kSlices>
inline void multiply_stage_rows(const bf16* x, const bf16* norm, int rows, int columns, int first_chunk, int chunks,
                                Epoch) {
  constexpr int kMost = stream::most_rows(kSlices);
  constexpr int kRun = kSlices * stream::kRunColumns, kPieces = kRun / 8;  // of eight, of a chunk
  const int pieces = chunks * kPieces;
  f32 squares[kMost] = {};
#pragma unroll 1
  for (int piece = lane(); piece < pieces; piece += kWarpLanes) {
    const int column = ((first_chunk + piece / kPieces) * kWarps + warp()) * kRun + piece % kPieces * 8;
    uint4 eights[kMost], weights = {0, 0, 0, 0};
#pragma unroll
    for (int t = 0; t < kMost; ++t) {
      eights[t] = {0, 0, 0, 0};
      if (t < rows && column < columns) eights[t] = *reinterpret_cast<const uint4*>(x + t * columns + column);
    }
    if (norm != nullptr && column < columns) weights = __ldg(reinterpret_cast<const uint4*>(norm + column));
#pragma unroll
    for (int t = 0; t < kMost; ++t) {
      if (t >= rows) break;
      if (norm != nullptr) {
        const uint2 low = normed(make_uint2(eights[t].x, eights[t].y), make_uint2(weights.x, weights.y), squares[t]);
        const uint2 high = normed(make_uint2(eights[t].z, eights[t].w), make_uint2(weights.z, weights.w), squares[t]);
        eights[t] = {low.x, low.y, high.x, high.y};
      }
      *reinterpret_cast<uint4*>(staged<kSlices>(t, chunks) + piece * 16) = eights[t];
    }
  }
  if (norm == nullptr) return;
#pragma unroll
  for (int t = 0; t < kMost; ++t) {
    const f32 total = warp_all(squares[t], Add{});
    if (lane() == 0) multiply_squares[t][warp()] = total;
  }
}

template <int kSlices, class X>
inline void multiply_stage(X x, const bf16* norm, int rows, int columns, int first_chunk, int chunks, Epoch epoch) {
  warp_sync();  // what was staged before was read
  multiply_stage_rows<kSlices>(x, norm, rows, columns, first_chunk, chunks, epoch);
  warp_sync();
  inputs_are_ready(epoch);
}

/// A single row of activations, words or plain: asked for before all else, since a warp needs a dozen instructions to
/// ask and a hundred to be ready for the answer; then put where multiply_stage() would.
template <class X>
class RowLook {
  // Fours of columns that a lane has: one of each two chunks.
  static constexpr int kSlices = 2, kUsual = 2, kMore = 6, kStep = 2 * stream::chunk_columns(kSlices);

 public:
  static constexpr int kMostColumns = (kUsual + kMore) * kStep;

  /// `norm` may be null, as there.
  RowLook(X x, const bf16* norm, int columns, Epoch epoch) {
    const u32 me = keep(threadIdx.x), lane = me % kWarpLanes, run = kSlices * stream::kRunColumns;
    column_ = static_cast<int>(lane / 16 * stream::chunk_columns(kSlices) + me / kWarpLanes * run + lane % 16 * 4);
    at_ = eight_at(x, column_);
    look(usual_, at_, column_, columns, epoch);
    if (norm != nullptr)
#pragma unroll
      for (int i = 0; i < kUsual; ++i)
        if (column_ + i * kStep < columns)
          factors_[i] = __ldg(reinterpret_cast<const uint2*>(norm + column_ + i * kStep));
  }
  /// Returns once the warp may read them, of `chunks` chunks.
  void stage(const bf16* norm, int columns, int chunks, Epoch epoch) {
    const int lane = kernels::lane();
    u8* const to = staged<kSlices>(0, chunks) + lane * 8;
    const int pieces = chunks * 16 - lane;  // from the lane's first on
    f32 squares = 0;
    const auto put = [&](int i, uint2 four, auto factors) {
      if (i * kWarpLanes >= pieces) return;
      if (norm != nullptr) four = normed(four, factors(), squares);
      *reinterpret_cast<uint2*>(to + i * kWarpLanes * 8) = four;
    };
    if (columns > kUsual * kStep) {
      const At at = at_ + kUsual * kApart;
      Eights<At, kMore> more;
      look(more, at, column_ + kUsual * kStep, columns, epoch);
      more.wait([&](int i) { return at + i * kApart; }, epoch);
#pragma unroll
      for (int i = 0; i < kMore; ++i)
        put(kUsual + i, more.get(i), [&] {
          const int column = column_ + (kUsual + i) * kStep;
          return column < columns ? __ldg(reinterpret_cast<const uint2*>(norm + column)) : uint2{0, 0};
        });
    }
    usual_.wait([&](int i) { return at_ + i * kApart; }, epoch);
#pragma unroll
    for (int i = 0; i < kUsual; ++i) put(i, usual_.get(i), [&] { return factors_[i]; });
    if (norm != nullptr) {
      squares = warp_all(squares, Add{});
      if (lane == 0) multiply_squares[0][warp()] = squares;
    }
    warp_sync();
    inputs_are_ready(epoch);
  }

 private:
  using At = decltype(eight_at(X{}, 0));
  static constexpr int kApart = kStep / 4;  // eights of payload

  template <int kCount>
  static void look(Eights<At, kCount>& fours, At at, int column, int columns, Epoch epoch) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (column + i * kStep < columns)
        fours.look(i, at + i * kApart);
      else
        fours.none(i, epoch);
  }

  int column_;
  At at_;
  Eights<At, kUsual> usual_;
  uint2 factors_[kUsual] = {};
};

/// Whether the next part of the activations is on its way while one is multiplied: elsewhere than on sm_90 the compiler
/// has no registers for it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
inline constexpr bool kHoldsAhead = false;
#else
inline constexpr bool kHoldsAhead = true;
#endif

/// Rows of activations that go straight from the L2 into the registers of multiply_held(): a lane has 16 bytes of each
/// chunk, of the row and the columns that the second operand wants of it. Rows lie as they are: a quarter of a warp
/// reads 64 bytes of one.
template <int kSlices, int kColumns>
class PlainRows {
  static constexpr int kChunkColumns = stream::chunk_columns(kSlices), kLanesOfRow = kSlices * 4;

 public:
  static constexpr int kChunks = static_cast<int>(stream::chunks_per_group(kColumns, kSlices));

  /// `x` [rows, kColumns]. What no row is there for repeats the first one, and nobody looks at what becomes of it.
  PlainRows(const bf16* x, int rows) : rows_(rows) {
    const u32 me = keep(threadIdx.x), run = me / kWarpLanes * kSlices + (kSlices == 2 ? me / 4 % 2 : 0);
    row_ = static_cast<int>(me % kWarpLanes) / kLanesOfRow;
    column_ = static_cast<int>(run * stream::kRunColumns + me % 4 * 8);
    from_ = x + (row_ < rows ? row_ * kColumns : 0) + column_;
  }
  /// From chunk `first` of a row on; zeros past the last column.
  template <int kCount>
  void hold(uint4 (&held)[kCount], int first) const {
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      held[c] = {0, 0, 0, 0};
      if (has(first + c, kChunks % kCount == 0))
        held[c] = *reinterpret_cast<const uint4*>(from_ + (first + c) * kChunkColumns);
    }
  }
  /// All of them, times `norm` [kColumns], as multiply_stage() has it.
  void hold_normed(uint4 (&held)[kChunks], const bf16* norm) const {
    hold(held, 0);
    f32 squares = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint4 factors = {0, 0, 0, 0};
      if (has(c, true)) factors = __ldg(reinterpret_cast<const uint4*>(norm + column_ + c * kChunkColumns));
      const uint2 low = normed({held[c].x, held[c].y}, {factors.x, factors.y}, squares);
      const uint2 high = normed({held[c].z, held[c].w}, {factors.z, factors.w}, squares);
      held[c] = {low.x, low.y, high.x, high.y};
    }
#pragma unroll
    for (int apart = 1; apart < kLanesOfRow; apart *= 2) squares += from_lane(squares, apart);
    if (lane() % kLanesOfRow == 0 && row_ < rows_) multiply_squares[row_][warp()] = squares;
  }

 private:
  bool has(int chunk, bool is_chunk) const {
    return (is_chunk || chunk < kChunks) &&
           (kColumns % kChunkColumns == 0 || chunk * kChunkColumns + column_ < kColumns);
  }

  const bf16* from_;
  int rows_, row_, column_;
};

/// What rmsnorm multiplies row t with besides its weight; `share_of_column`: 1 / columns. After a barrier of the block
/// behind multiply_stage().
inline f32 multiply_scale(int t, f32 share_of_column, f32 eps) {
  f32 total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w += 4) {
    const float4 of_warps = *reinterpret_cast<const float4*>(&multiply_squares[t][w]);
    total += (of_warps.x + of_warps.y) + (of_warps.z + of_warps.w);
  }
  return fast_rsqrt(fma(total, share_of_column, eps));
}

/// The next chunk of the ring, as who multiplies by chunk after chunk wants to know it: the address of its barrier,
/// from which all others follow.
class RingCursor {
 public:
  explicit RingCursor(RingPlace ring) {
    constexpr u32 kWarpBytes = stream::kChunkBytes / kWarps;
    const u32 me = keep(threadIdx.x), begin = shared_address(ring_barriers.full);
    full_ = begin + ring.slot * 8;
    end_ = keep(begin + kRingBarriers * 8);
    parity_ = ring.parity;
    data_ = keep(shared_address(dynamic_shared) + me / kWarpLanes * kWarpBytes + me % kWarpLanes * 16 -
                 begin * kBytesOfBarrier);
  }

  /// The lane's share of the next kCount chunks, once they are there; its two halves are 512 bytes apart. `at`: where
  /// their barriers are.
  template <u32 kCount>
  void take(uint4 (&share)[kCount][2], u32 (&at)[kCount]) {
    u32 parity[kCount];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      at[i] = full_;
      parity[i] = parity_;
      full_ += 8;
      if (full_ == end_) {
        full_ -= kRingBarriers * 8;
        parity_ ^= 1;
      }
    }
    while (!barriers_passed(at, parity)) {}
#pragma unroll
    for (u32 i = 0; i < kCount; ++i)
#pragma unroll
      for (u32 j = 0; j < 2; ++j) share[i][j] = load_shared(at[i] * kBytesOfBarrier + data_ + j * 512);
  }
  /// Gives the slots back of chunks that all lanes have taken.
  template <u32 kCount>
  static void free(const u32 (&at)[kCount]) {
    warp_sync();
    if (threadIdx.x % kWarpLanes != 0) return;
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) barrier_arrive_at(at[i] + sizeof(ring_barriers.full));
  }

 private:
  static constexpr u32 kBytesOfBarrier = stream::kChunkBytes / 8;  // of ring for each byte of barriers

  u32 full_, end_, parity_, data_;
};

/// Multiplies groups of rows of weights from the stream with what multiply_stage() left.
template <int kSlices>
class GroupMultiplier {
  static constexpr u32 kGroupRows = stream::group_rows(kSlices), kRunBytes = kSlices * stream::kRunColumns * 2;
  static constexpr u32 kMost = kRingSlots >= 4 ? 2 : 1;  // chunks at once

 public:
  /// `ring`: where the first chunk is; before the activations are waited for, so that all is known then.
  GroupMultiplier(RingPlace ring, int rows) : ring_(ring), rows_(static_cast<u32>(rows)) {
    const u32 thread = keep(threadIdx.x), me = thread % kWarpLanes;
    const u32 row = kSlices == 2 ? me / 8 : me / 4, slice = kSlices == 2 ? me / 4 % 2 : 0;
    active_ = row < rows_;
    row_ = active_ ? row * kWarps + thread / kWarpLanes : thread / kWarpLanes;
    x_ = keep(shared_address(area_behind_sums()) + slice * (stream::kRunColumns * 2) + 16 * (me % 4));
    sums_ = keep(shared_address(multiply_sums() + thread / kWarpLanes * stream::kSumsPerWarp + me / 4));
  }

  /// `count` groups of `chunks` chunks each. The sum of row t of the activations with place n of the count * kGroupRows
  /// rows is, for each warp w, multiply_sums()[w * kSumsPerWarp + t * count * kGroupRows + n], after a barrier of the
  /// block. With `adds`, to what is there of an earlier part of the columns.
  void run(int count, int chunks, bool adds) {
    x_begin_ = keep(x_ + row_ * (static_cast<u32>(chunks) * kRunBytes));
    to_ = sums_;
    stride_ = static_cast<u32>(count) * kGroupRows * 4;
    u32 groups = static_cast<u32>(count);
    // Groups of one chunk by fours, too.
    if (chunks == 1) {
#pragma unroll 1
      for (; groups >= kMost; groups -= kMost) {
        f32 d[kMost][4] = {};
        multiply<kMost, 0>(d, x_begin_);
#pragma unroll
        for (u32 i = 0; i < kMost; ++i) put(d[i], adds);
      }
    }
#pragma unroll 1
    for (; groups > 0; --groups) {
      f32 d[1][4] = {};
      u32 x = x_begin_, left = static_cast<u32>(chunks);
#pragma unroll 1
      for (; left >= kMost; left -= kMost, x += kMost * kRunBytes) multiply<kMost, kRunBytes>(d, x);
      if constexpr (kMost > 2)
        if (left >= 2) {
          multiply<2, kRunBytes>(d, x);
          left -= 2;
          x += 2 * kRunBytes;
        }
      if constexpr (kMost > 1)
        if (left > 0) multiply<1, kRunBytes>(d, x);
      put(d[0], adds);
    }
  }

 private:
  /// kCount chunks with activations that lie kStep bytes apart: to sums of their own, or all to one.
  template <u32 kCount, u32 kStep, u32 kSums>
  void multiply(f32 (&d)[kSums][4], u32 x) {
    static_assert(kSums == 1 || kSums == kCount);
    constexpr u32 kOperands = kStep == 0 ? 1 : kCount;
    uint4 b[kOperands], a[kCount][2];
#pragma unroll
    for (u32 i = 0; i < kOperands; ++i) {
      b[i] = {0, 0, 0, 0};
      if (active_) b[i] = load_shared(x + i * kStep);
    }
    u32 at[kCount];
    ring_.take(a, at);
    // Two sums take turns, since a multiplication waits for the one before it.
    f32 other[4] = {};
#pragma unroll
    for (u32 j = 0; j < 2; ++j)
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        f32(&to)[4] = kSums > 1 ? d[i % kSums] : i % 2 == 0 ? d[0] : other;
        const uint4& of = b[i % kOperands];
        multiply_accumulate(to, a[i][j], j == 0 ? of.x : of.z, j == 0 ? of.y : of.w);
      }
    if constexpr (kSums == 1 && kCount > 1)
#pragma unroll
      for (u32 k = 0; k < 4; ++k) d[0][k] += other[k];
    ring_.free(at);
  }
  /// The sums of a group, to where the warp's are.
  void put(const f32 (&d)[4], bool adds) {
    const u32 t4 = threadIdx.x % 4;
    if constexpr (kSlices == 2) {
      // Rows 0-7 of the tile are slice 0, whose activations are the even columns; rows 8-15 slice 1, the odd ones.
      put_sum(t4 < rows_, to_ + t4 * stride_, d[0] + d[3], adds);
    } else {
#pragma unroll
      for (u32 j = 0; j < 4; ++j)
        put_sum(2 * t4 + j % 2 < rows_, to_ + (2 * t4 + j % 2) * stride_ + j / 2 * 32, d[j], adds);
    }
    to_ += kGroupRows * 4;
  }

  RingCursor ring_;
  const u32 rows_;
  bool active_;
  u32 row_, x_, x_begin_ = 0, sums_, to_ = 0, stride_ = 0;
};

/// The same with activations in registers, for groups of `chunks` chunks each.
template <int kSlices, int kCount>
inline RingPlace multiply_held(RingPlace ring, const uint4 (&held)[kCount], int count, int chunks, int rows,
                               bool adds) {
  constexpr u32 kGroupRows = stream::group_rows(kSlices);
  constexpr u32 kAtOnce = kRingSlots >= 4 && kCount % 2 == 0 ? 2 : 1;
  constexpr u32 kWarpBytes = stream::kChunkBytes / kWarps;
  const u32 thread = keep(threadIdx.x), me = thread % kWarpLanes, t4 = me % 4, g = me / 4, w = thread / kWarpLanes;
  const u32 mine = keep(shared_address(dynamic_shared) + w * kWarpBytes + me * 16);
  const u32 full = keep(shared_address(ring_barriers.full)), empty = keep(shared_address(ring_barriers.empty));
  const u32 stride = count * kGroupRows * 4, num_rows = rows, num_chunks = chunks;
  u32 to = keep(shared_address(multiply_sums() + w * stream::kSumsPerWarp + g));
#pragma unroll 1
  for (int group = 0; group < count; ++group) {
    f32 sum[4] = {};
#pragma unroll
    for (u32 first = 0; first < kCount; first += kAtOnce) {
      if (first >= num_chunks) continue;
      // Past the end the last chunk is looked at again, and not counted.
      const u32 left = num_chunks - first;
      uint4 a[kAtOnce][2];
      u32 from[kAtOnce], full_at[kAtOnce], parity[kAtOnce];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        const RingPlace place = ring + (i < left ? i : left - 1);
        from[i] = mine + place.slot * stream::kChunkBytes;
        full_at[i] = full + place.slot * 8;
        parity[i] = place.parity;
      }
      while (!barriers_passed(full_at, parity)) {}
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (u32 j = 0; j < 2; ++j) a[i][j] = load_shared(from[i] + j * 512);
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (i >= left) break;
        multiply_accumulate(sum, a[i][0], held[first + i].x, held[first + i].y);
        multiply_accumulate(sum, a[i][1], held[first + i].z, held[first + i].w);
      }
      warp_sync();
      if (me < kAtOnce && me < left) barrier_arrive_at(empty + (ring + me).slot * 8);
      ring = ring + (left < kAtOnce ? left : kAtOnce);
    }
    if constexpr (kSlices == 2) {
      put_sum(t4 < num_rows, to + t4 * stride, sum[0] + sum[3], adds);
    } else {
#pragma unroll
      for (u32 j = 0; j < 4; ++j)
        put_sum(2 * t4 + j % 2 < num_rows, to + (2 * t4 + j % 2) * stride + j / 2 * 32, sum[j], adds);
    }
    to += kGroupRows * 4;
  }
  return ring;
}

/// The sums of all warps for `Vector` (float2, float4) of places, in an order of their own.
template <class Vector>
inline Vector multiply_sum(const f32* from) {
  constexpr int kWidth = sizeof(Vector) / sizeof(f32), kAtOnce = 4;
  union Values {
    Vector vector;
    f32 values[kWidth];
  } total = {}, part[kAtOnce];
#pragma unroll
  for (int w = 0; w < kWarps; w += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      part[i].vector = *reinterpret_cast<const Vector*>(from + (w + i) * stream::kSumsPerWarp);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      total.values[i] += (part[0].values[i] + part[1].values[i]) + (part[2].values[i] + part[3].values[i]);
  }
  return total.vector;
}

}  // namespace megalith::kernels
