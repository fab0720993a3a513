// y[t, n] = sum over k of x[t, k] * weight[n, k], for a few rows of activations, with weights from the stream: what
// decoding spends its time on. A warp has the same columns of every row of weights, so it waits for those activations
// alone (gemv_activations.cuh), and no barrier stands before the multiplication:
//
//   multiply   with its share of every chunk, by tensor cores (kernels/stream_layout.h)
//   sums       after a barrier of the block: of all warps, in order; then the epilogue, a thread a pair of results
//
// All order of summation follows from the layout, never from who is first: the same bits every run.
//
// A stage of a small model takes two microseconds, so four things count that elsewhere do not:
//   * Instructions: a hundred of each of 16 warps are 0.2 us.
//   * Nothing may land in local memory: the first-level cache beside a full shared memory has 50 bytes a thread, and
//     what falls out of it takes a microsecond to come back. So these are no functions that are called (the convention
//     saves registers to the stack), arrays are set before they are used under conditions, and tasks lie in shared
//     memory.
//   * Addresses that a loop uses are worked out once, and kept (keep()): the compiler works them out again behind every
//     wait if it is left to itself.
//   * What is waited for is asked for together: the barriers of two chunks, then their loads, then their
//     multiplications.
#pragma once

#include "megalith/kernels/cuda/mainloop/gemv_activations.cuh"
#include "megalith/kernels/cuda/mainloop/int8.cuh"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// What weights are to the loops below, by the type of the operand: floats of 16 bits, or int8. A chunk of them is a span
/// of columns for which activations come together, or two.
template <class Operand>
struct WeightsOf;
template <Half T>
struct WeightsOf<const T*> {
  using Element = T;
  static constexpr bool kAreInt8 = false;
  static constexpr u32 kSpans = 1;
};
template <Half T>
struct WeightsOf<Int8<T>> {
  using Element = T;
  static constexpr bool kAreInt8 = true;
  static constexpr u32 kSpans = int8::kSpans;
};

/// The next chunk of the ring, as who multiplies by chunk after chunk wants to know it: the address of its barrier,
/// from which all others follow.
class RingCursor {
 public:
  explicit RingCursor(RingPlace ring) {
    constexpr u32 kWarpBytes = stream::kChunkBytes / kWarps;
    const u32 me = keep(threadIdx.x), begin = shared_address(ring_barriers().full);
    full_ = begin + ring.slot * 8;
    end_ = keep(begin + kRingBarriers * 8);
    parity_ = ring.parity;
    data_ = keep(shared_address(ring_slot(0)) + me / kWarpLanes * kWarpBytes + me % kWarpLanes * 16 -
                 begin * kBytesOfBarrier);
    if constexpr (kScaleBytes > 0)
      scales_ = keep(shared_address(ring_scales(0)) + me / kWarpLanes * (kScaleBytes / kWarps) +
                     me % kWarpLanes / 4 * 8 - begin * kScalesOfBarrier);
  }

  /// The lane's share of the next kCount chunks, once they are there; its two halves are 512 bytes apart. `at`: where
  /// their barriers are. Of only `count` of them, 1 or more, the last one is taken again.
  template <u32 kCount>
  void take(uint4 (*share)[2], u32 (&at)[kCount], u32 count = kCount) {
    u32 parity[kCount];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      at[i] = i < count ? full_ : at[i > 0 ? i - 1 : 0];
      parity[i] = i < count ? parity_ : parity[i > 0 ? i - 1 : 0];
      if (i >= count) continue;
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
  /// Of chunks that are there, the scales of the lane's two tile rows in both spans.
  template <u32 kCount>
  void take_scales(uint2 (&scales)[kCount], const u32 (&at)[kCount]) const {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) scales[i] = load_shared_eight(at[i] * kScalesOfBarrier + scales_);
  }
  /// Gives the slots back of `count` chunks that all lanes have taken.
  template <u32 kCount>
  static void free(const u32 (&at)[kCount], u32 count = kCount) {
    if (kEveryThreadArrives) fence_reads_before_copies();
    warp_sync();
    if (!kEveryThreadArrives && threadIdx.x % kWarpLanes != 0) return;
#pragma unroll
    for (u32 i = 0; i < kCount; ++i)
      if (i < count) barrier_arrive_at(at[i] + sizeof(ring_barriers().full));
  }

 private:
  // Of ring, and of scales, for each byte of barriers.
  static constexpr u32 kBytesOfBarrier = stream::kChunkBytes / 8, kScalesOfBarrier = kScaleBytes / 8;

  u32 full_, end_, parity_, data_, scales_ = 0;
};

/// Multiplies groups of rows of weights from the stream with what multiply_stage() left.
template <int kSlices, class Weights>
class GroupMultiplier {
  using T = typename Weights::Element;
  static constexpr u32 kGroupRows = stream::group_rows(kSlices), kSpanBytes = kSlices * stream::kRunColumns * 2,
                       kSpans = Weights::kSpans, kRunBytes = kSpans * kSpanBytes;
  static constexpr u32 kMax = kRingSlots >= 4 ? 2 : 1;  // chunks at once

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

  /// `count` groups of `spans` spans of columns each. The sum of row t of the activations with place n of the
  /// count * kGroupRows rows is, for each warp w, multiply_sums()[w * kSumsPerWarp + t * count * kGroupRows + n], after a
  /// barrier of the block. With `adds`, to what is there of an earlier part of the columns. `room`: of spans, as
  /// multiply_stage() was told.
  void run(int count, int spans, int room, bool adds) {
    const u32 num_spans = static_cast<u32>(spans), chunks = (num_spans + kSpans - 1) / kSpans;
    x_begin_ = keep(x_ + row_ * (static_cast<u32>(room) * kSpanBytes));
    to_ = sums_;
    stride_ = static_cast<u32>(count) * kGroupRows * 4;
    u32 groups = static_cast<u32>(count);
    // Groups of one chunk by fours, too.
    if (chunks == 1) {
#pragma unroll 1
      for (; groups >= kMax; groups -= kMax) {
        f32 d[kMax][4] = {};
        multiply<kMax, 0>(d, x_begin_, num_spans);
#pragma unroll
        for (u32 i = 0; i < kMax; ++i) put(d[i], adds);
      }
    }
#pragma unroll 1
    for (; groups > 0; --groups) {
      f32 d[1][4] = {};
      u32 x = x_begin_, left = chunks;
#pragma unroll 1
      for (; left >= kMax; left -= kMax, x += kMax * kRunBytes)
        multiply<kMax, kRunBytes>(d, x, num_spans - (chunks - left) * kSpans);
      if constexpr (kMax > 2)
        if (left >= 2) {
          multiply<2, kRunBytes>(d, x, num_spans - (chunks - left) * kSpans);
          left -= 2;
          x += 2 * kRunBytes;
        }
      if constexpr (kMax > 1)
        if (left > 0) multiply<1, kRunBytes>(d, x, num_spans - (chunks - left) * kSpans);
      put(d[0], adds);
    }
  }

 private:
  /// kCount chunks with activations that lie kStep bytes apart: to sums of their own, or all to one. `spans`: how many
  /// are left; of the last chunk the second one may not be there.
  template <u32 kCount, u32 kStep, u32 kSums>
  void multiply(f32 (&d)[kSums][4], u32 x, [[maybe_unused]] u32 spans) {
    static_assert(kSums == 1 || kSums == kCount);
    constexpr u32 kOperands = (kStep == 0 ? 1 : kCount) * kSpans;
    uint4 b[kOperands], a[kCount][2];
#pragma unroll
    for (u32 i = 0; i < kOperands; ++i) {
      b[i] = {0, 0, 0, 0};
      if (active_ && (kSpans == 1 || i < spans)) b[i] = load_shared(x + i * kSpanBytes);
    }
    u32 at[kCount];
    ring_.take(a, at);
    if constexpr (Weights::kAreInt8) {
      uint2 scales[kCount];
      ring_.take_scales(scales, at);
#pragma unroll
      for (u32 i = 0; i < kCount; ++i)
#pragma unroll
        for (u32 j = 0; j < 2; ++j)
          multiply_run<kSlices, T>(d[i % kSums], a[i][j], j == 0 ? scales[i].x : scales[i].y,
                                   b[(i * kSpans + j) % kOperands]);
      ring_.free(at);
      return;
    }
    // Two sums take turns, since a multiplication waits for the one before it.
    f32 other[4] = {};
#pragma unroll
    for (u32 j = 0; j < 2; ++j)
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        f32(&to)[4] = kSums > 1 ? d[i % kSums] : i % 2 == 0 ? d[0] : other;
        const uint4& of = b[i % kOperands];
        multiply_accumulate(T{}, to, a[i][j], j == 0 ? of.x : of.z, j == 0 ? of.y : of.w);
      }
    if constexpr (kSums == 1 && kCount > 1)
#pragma unroll
      for (u32 k = 0; k < 4; ++k) d[0][k] += other[k];
    ring_.free(at);
  }
  /// The sums of a group, to where the warp's are.
  void put(const f32 (&d)[4], bool adds) {
    // A kernel for prompts would keep it from the first task on, and has no register for that.
    const u32 t4 = (kWorkerConfig.table_rows > 128 ? static_cast<u32>(lane()) : threadIdx.x) % 4;
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

/// The same for a single row that RowLook holds or stages, of groups of kChunks tiles. A task's first weights, of at most
/// kMaxTilesAhead tiles, are in registers before the row is there: shared memory takes 128 cycles for a tile, in which whoever
/// waits for a row has nothing else to do. Their registers are not set before: that took 1 % of a token of Qwen3-0.6B on an
/// H200.
template <int kSlices, class Weights, int kChunks, u32 kMaxTilesAhead>
class RowMultiplier {
  using T = typename Weights::Element;
  static constexpr u32 kGroupRows = stream::group_rows(kSlices), kSpanBytes = kSlices * stream::kRunColumns * 2;
  static constexpr u32 kMaxTiles = kRingSlots / 2 < kMaxTilesAhead ? 2 : kMaxTilesAhead;
  // At once: a group, or two of one chunk. Ahead: several of those, or the first group, or a part of it.
  static constexpr u32 kAtOnce = kChunks == 1 ? 2 : 1, kGroupsAhead = kChunks == 1 ? kMaxTiles : 1,
                       kOfGroup = kChunks <= kMaxTiles ? kChunks : kMaxTiles, kAhead = kGroupsAhead * kOfGroup;
  static_assert(kMaxTiles % 2 == 0);

 public:
  /// Whether lanes give each other what they multiply of what RowLook::hold() gave them, instead of putting it into shared
  /// memory and looking it up there. Of two chunks that gains nothing, and of three a word spills that lives across bodies.
  static constexpr bool kHolds = kChunks == 1;
  uint2 held;

  RowMultiplier(RingPlace ring, int) : ring_(ring) {
    const u32 thread = keep(threadIdx.x), me = thread % kWarpLanes, w = thread / kWarpLanes;
    const u32 slice = kSlices == 2 ? me / 4 % 2 : 0;
    writes_ = me % 4 == 0;
    if constexpr (!kHolds)
      x_ = keep(shared_address(area_behind_sums()) + w * (kChunks * kSpanBytes) + slice * (stream::kRunColumns * 2) +
                16 * (me % 4));
    sums_ = keep(shared_address(multiply_sums() + w * stream::kSumsPerWarp + me / 4));
  }

  /// Before the row is waited for. `count`: groups that run() will be asked for, 1 or more.
  void look_ahead(int count) {
    if constexpr (kAhead == 3) {
      take<2>(ahead_);
      take<1>(ahead_ + 2);
    } else {
      take<kAhead>(ahead_, kChunks == 1 ? static_cast<u32>(min(count, static_cast<int>(kAhead))) : kAhead);
    }
  }
  /// `count` groups, whose sums are as GroupMultiplier::run() leaves them. `meanwhile` is done while the first ones are
  /// multiplied.
  template <class Meanwhile>
  void run(int count, Meanwhile meanwhile) {
    const u32 groups = static_cast<u32>(count);
    uint4 x[kOfGroup];
#pragma unroll
    for (u32 c = 0; c < kOfGroup; ++c) x[c] = activations(c);
    u32 to = sums_;
#pragma unroll
    for (u32 first = 0; first < kGroupsAhead; first += kAtOnce) {
      if (first >= groups) break;
      f32 d[kAtOnce][2][4] = {};
#pragma unroll
      for (u32 c = 0; c < kOfGroup; ++c)
#pragma unroll
        for (u32 j = 0; j < 2; ++j)
#pragma unroll
          for (u32 g = 0; g < kAtOnce; ++g) accumulate(d[g][c % 2], ahead_[(first + g) * kOfGroup + c], x[c], j);
      if (first == 0) meanwhile();
      if constexpr (kOfGroup < kChunks) multiply_rest(d[0], kOfGroup);
#pragma unroll
      for (u32 g = 0; g < kAtOnce; ++g, to += kGroupRows * 4) put(to, d[g]);
    }
#pragma unroll 1
    for (u32 done = kGroupsAhead; done < groups; done += kAtOnce) {
      f32 d[kAtOnce][2][4] = {};
      if constexpr (kChunks > 1) {
        multiply_rest(d[0], 0);
      } else {
        uint4 a[kAtOnce][2];
        take<kAtOnce>(a, groups - done < kAtOnce ? groups - done : kAtOnce);
#pragma unroll
        for (u32 j = 0; j < 2; ++j)
#pragma unroll
          for (u32 g = 0; g < kAtOnce; ++g) accumulate(d[g][0], a[g], x[0], j);
      }
#pragma unroll
      for (u32 g = 0; g < kAtOnce; ++g, to += kGroupRows * 4) put(to, d[g]);
    }
  }

 private:
  /// All rows of the second operand are the one row: nobody looks at what becomes of the others.
  uint4 activations(u32 chunk) const {
    if constexpr (kHolds) {
      const u32 me = threadIdx.x % kWarpLanes, slice = kSlices == 2 ? me / 4 % 2 : 0;
      const auto of = [&](u32 value, u32 next) {
        return __shfl_sync(0xffffffffu, value, static_cast<int>(slice * (stream::kRunColumns / 4) + me % 4 * 2 + next));
      };
      return {of(held.x, 0), of(held.y, 0), of(held.x, 1), of(held.y, 1)};
    } else {
      return load_shared(x_ + chunk * kSpanBytes);
    }
  }
  template <u32 kCount>
  void take(uint4 (*share)[2], u32 count = kCount) {
    u32 at[kCount];
    ring_.take(share, at, count);
    ring_.free(at, count);
  }
  static void accumulate(f32 (&d)[4], const uint4 (&a)[2], uint4 x, u32 j) {
    multiply_accumulate(T{}, d, a[j], j == 0 ? x.x : x.z, j == 0 ? x.y : x.w);
  }
  /// A group's chunks from `first` on, an even number, by twos.
  void multiply_rest(f32 (&d)[2][4], u32 first) {
#pragma unroll 1
    for (; first + 1 < kChunks; first += 2) multiply<2>(d, first);
    if constexpr (kChunks % 2 != 0) multiply<1>(d, kChunks - 1);
  }
  template <u32 kCount>
  void multiply(f32 (&d)[2][4], u32 first) {
    uint4 x[kCount], a[kCount][2];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) x[i] = activations(first + i);
    take<kCount>(a);
#pragma unroll
    for (u32 j = 0; j < 2; ++j)
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) accumulate(d[i], a[i], x[i], j);
  }
  void put(u32 to, const f32 (&d)[2][4]) const {
    const auto sum = [&](u32 i) { return kChunks > 1 ? d[0][i] + d[1][i] : d[0][i]; };
    if (!writes_) return;
    // Of two slices as GroupMultiplier has it.
    if constexpr (kSlices == 2) {
      store_shared(to, sum(0) + sum(3));
    } else {
      store_shared(to, sum(0));
      store_shared(to + 32, sum(2));
    }
  }

  RingCursor ring_;
  bool writes_;
  u32 x_ = 0, sums_;
  uint4 ahead_[kAhead][2];
};

/// The same with activations in registers, for groups of `spans` spans of columns each.
template <int kSlices, class Weights, int kCount>
inline RingPlace multiply_held(RingPlace ring, const uint4 (&held)[kCount], int count, int spans, int rows, bool adds) {
  using T = typename Weights::Element;
  constexpr u32 kGroupRows = stream::group_rows(kSlices), kSpans = Weights::kSpans;
  constexpr u32 kAtOnce = kRingSlots >= 4 && kCount % (2 * kSpans) == 0 ? 2 : 1;  // chunks
  constexpr u32 kWarpBytes = stream::kChunkBytes / kWarps;
  const u32 thread = keep(threadIdx.x), me = thread % kWarpLanes, t4 = me % 4, g = me / 4, w = thread / kWarpLanes;
  const u32 mine = keep(shared_address(ring_slot(0)) + w * kWarpBytes + me * 16);
  [[maybe_unused]] u32 scales_of_lane = 0;
  if constexpr (Weights::kAreInt8)
    scales_of_lane = keep(shared_address(ring_scales(0)) + w * (kScaleBytes / kWarps) + g * 8);
  const u32 full = keep(shared_address(ring_barriers().full)), empty = keep(shared_address(ring_barriers().empty));
  const u32 stride = count * kGroupRows * 4, num_rows = rows, num_spans = spans;
  u32 to = keep(shared_address(multiply_sums() + w * stream::kSumsPerWarp + g));
#pragma unroll 1
  for (int group = 0; group < count; ++group) {
    f32 sum[4] = {};
#pragma unroll
    for (u32 first = 0; first < kCount; first += kAtOnce * kSpans) {
      if (first >= num_spans) continue;
      // Past the end the last chunk is looked at again, and not counted.
      const u32 left = (num_spans - first + kSpans - 1) / kSpans;
      uint4 a[kAtOnce][2];
      u32 from[kAtOnce], full_at[kAtOnce], parity[kAtOnce];
      [[maybe_unused]] u32 scales_at[kAtOnce];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        const RingPlace place = ring + (i < left ? i : left - 1);
        from[i] = mine + place.slot * stream::kChunkBytes;
        full_at[i] = full + place.slot * 8;
        parity[i] = place.parity;
        if constexpr (Weights::kAreInt8) scales_at[i] = scales_of_lane + place.slot * kScaleBytes;
      }
      while (!barriers_passed(full_at, parity)) {}
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (u32 j = 0; j < 2; ++j) a[i][j] = load_shared(from[i] + j * 512);
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (i >= left) break;
        if constexpr (Weights::kAreInt8) {
          const uint2 scales = load_shared_eight(scales_at[i]);
#pragma unroll
          for (u32 j = 0; j < 2 && first + 2 * i + j < kCount; ++j)
            multiply_run<kSlices, T>(sum, a[i][j], j == 0 ? scales.x : scales.y, held[first + 2 * i + j]);
        } else {
          multiply_accumulate(T{}, sum, a[i][0], held[first + i].x, held[first + i].y);
          multiply_accumulate(T{}, sum, a[i][1], held[first + i].z, held[first + i].w);
        }
      }
      if (kEveryThreadArrives) fence_reads_before_copies();
      warp_sync();
      if (kEveryThreadArrives) {
        for (u32 i = 0; i < kAtOnce && i < left; ++i) barrier_arrive_at(empty + (ring + i).slot * 8);
      } else if (me < kAtOnce && me < left) {
        barrier_arrive_at(empty + (ring + me).slot * 8);
      }
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
