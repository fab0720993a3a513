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

template <int kSlices, bool kOneRow, class X>
inline void multiply_stage(X x, const bf16* norm, int rows, int columns, int first_chunk, int chunks, Epoch epoch) {
  warp_sync();  // what was staged before was read
  if constexpr (kOneRow)
    multiply_stage_row<kSlices>(x, 0, norm, columns, first_chunk, chunks, epoch);
  else
    multiply_stage_rows<kSlices>(x, norm, rows, columns, first_chunk, chunks, epoch);
  warp_sync();
  inputs_are_ready(epoch);
}

/// Whether the next part of the activations is on its way while one is multiplied: before sm_90 there are no registers
/// for it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
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

/// What rmsnorm multiplies row t with besides its weight. After a barrier of the block behind multiply_stage().
inline f32 multiply_scale(int t, int columns, f32 eps) {
  f32 total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; w += 4) {
    const float4 of_warps = *reinterpret_cast<const float4*>(&multiply_squares[t][w]);
    total += (of_warps.x + of_warps.y) + (of_warps.z + of_warps.w);
  }
  return fast_rsqrt(fast_divide(total, static_cast<f32>(columns)) + eps);
}

/// `count` groups of rows of weights from the stream, `chunks` chunks each, times what multiply_stage() left. The sum
/// of row t of the activations with place n of the count * group_rows rows is, for each warp w, multiply_sums()[w *
/// kSumsPerWarp + t * count * group_rows + n], after a barrier of the block. With `adds`, to what is there of an
/// earlier part of the columns. Returns where the chunks after them begin.
template <int kSlices>
inline RingPlace multiply_groups(RingPlace ring, int count, int chunks, int rows, bool adds) {
  constexpr u32 kGroupRows = stream::group_rows(kSlices), kAtOnce = kRingSlots >= 8 ? 4 : kRingSlots >= 4 ? 2 : 1;
  constexpr u32 kSums = kSlices == 2 ? 1 : 4;  // that a lane has of a group
  constexpr u32 kRunBytes = kSlices * stream::kRunColumns * 2, kWarpBytes = stream::kChunkBytes / kWarps;
  constexpr u32 kPairs = stream::kRunColumns / 32;  // of multiplications, for a chunk
  const u32 me = keep(threadIdx.x % kWarpLanes), t4 = me % 4, g = me / 4;
  const u32 row = kSlices == 2 ? g / 2 : g, slice = kSlices == 2 ? g % 2 : 0;
  const bool active = row < static_cast<u32>(rows);
  const u32 x =
      keep(shared_address(staged<kSlices>(active ? row : 0, chunks)) + slice * (stream::kRunColumns * 2) + 16 * t4);
  const u32 x_end = x + chunks * kRunBytes;
  const u32 mine = keep(shared_address(dynamic_shared) + warp() * kWarpBytes + me * 16);
  const u32 full = keep(shared_address(ring_full)), empty = keep(shared_address(ring_empty));
  const u32 total = keep(count * chunks), stride = count * kGroupRows * 4, num_rows = rows;
  u32 to = shared_address(multiply_sums() + warp() * stream::kSumsPerWarp + g);
  f32 sum[kSums] = {};
  u32 x_at = x, x_sum = x;
#pragma unroll 1
  for (u32 at = 0; at < total; at += kAtOnce) {
    // Past the end the last chunk is taken again, and not counted.
    const u32 left = total - at;
    uint4 b[kAtOnce][kPairs], a[kAtOnce][2 * kPairs];
    u32 from[kAtOnce], full_at[kAtOnce], parity[kAtOnce];
#pragma unroll
    for (u32 i = 0; i < kAtOnce; ++i) {
      const RingPlace place = ring + (i < left ? i : left - 1);
      from[i] = mine + place.slot * stream::kChunkBytes;
      full_at[i] = full + place.slot * 8;
      parity[i] = place.parity;
#pragma unroll
      for (u32 j = 0; j < kPairs; ++j) {
        b[i][j] = {0, 0, 0, 0};
        if (active) b[i][j] = load_shared(x_at + j * 64);
      }
      x_at += kRunBytes;
      if (x_at == x_end) x_at = x;
    }
    while (!barriers_passed(full_at, parity)) {}
#pragma unroll
    for (u32 i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (u32 j = 0; j < 2 * kPairs; ++j) a[i][j] = load_shared(from[i] + j * 512);
    f32 d[kAtOnce][4] = {};
#pragma unroll
    for (u32 j = 0; j < kPairs; ++j) {
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) multiply_accumulate(d[i], a[i][2 * j], b[i][j].x, b[i][j].y);
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) multiply_accumulate(d[i], a[i][2 * j + 1], b[i][j].z, b[i][j].w);
    }
    warp_sync();
    if (me < kAtOnce && me < left) barrier_arrive_at(empty + (ring + me).slot * 8);
    ring = ring + (left < kAtOnce ? left : kAtOnce);
    // Chunks of a group by twos, where that is how they come.
    const auto take = [&](u32 i, auto taken) {
      if (i >= left) return;
#pragma unroll
      for (u32 k = i; k < i + taken; ++k) {
        if constexpr (kSlices == 2) {
          // Rows 0-7 of the tile are slice 0, whose activations are the even columns; rows 8-15 slice 1, the odd ones.
          sum[0] += d[k][0] + d[k][3];
        } else {
#pragma unroll
          for (u32 j = 0; j < kSums; ++j) sum[j] += d[k][j];
        }
      }
      x_sum += taken * kRunBytes;
      if (x_sum != x_end) return;
      x_sum = x;
      if constexpr (kSlices == 2) {
        put_sum(t4 < num_rows, to + t4 * stride, sum[0], adds);
      } else {
#pragma unroll
        for (u32 j = 0; j < kSums; ++j)
          put_sum(2 * t4 + j % 2 < num_rows, to + (2 * t4 + j % 2) * stride + j / 2 * 32, sum[j], adds);
      }
#pragma unroll
      for (u32 j = 0; j < kSums; ++j) sum[j] = 0;
      to += kGroupRows * 4;
    };
    if (kAtOnce % 2 == 0 && chunks % 2 == 0) {
#pragma unroll
      for (u32 i = 0; i < kAtOnce; i += 2) take(i, Constant<2>{});
    } else {
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) take(i, Constant<1>{});
    }
  }
  return ring;
}

/// The same with activations in registers, for groups of `chunks` chunks each.
template <int kSlices, int kCount>
inline RingPlace multiply_held(RingPlace ring, const uint4 (&held)[kCount], int count, int chunks, int rows,
                               bool adds) {
  constexpr u32 kGroupRows = stream::group_rows(kSlices);
  constexpr u32 kAtOnce = kRingSlots >= 4 && kCount % 2 == 0 ? 2 : 1;
  constexpr u32 kWarpBytes = stream::kChunkBytes / kWarps;
  const u32 thread = keep(threadIdx.x), me = thread % kWarpLanes, t4 = me % 4, g = me / 4, w = thread / kWarpLanes;
  const u32 mine = keep(shared_address(dynamic_shared) + w * kWarpBytes + me * 16);
  const u32 full = keep(shared_address(ring_full)), empty = keep(shared_address(ring_empty));
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
