// y[t, n] = sum over k of x[t, k] * weight[n, k], for up to 512 rows of activations, with weights from the stream:
// batches and prompts. Activations are the first operand of the multiplication, in registers, straight from the L2: a
// lane's share of 16 rows lies together (kernels/row_blocks.h). Weights are the second, read by the tensor cores out of
// the ring: so neither passes through shared memory more often than once, which is what bounds other ways to do this. Of more
// than 128 rows sums leave no registers for activations, which the tensor cores then read from a ring, too (gemm_own_rows.cuh).
//
// Of up to 64 rows of activations all four warpgroups of the block have all of them; of up to 128, two have each half; of
// more, each has a quarter of those of a task, 256 at most, so its sums are complete, and leave from where they were formed,
// in registers. Of a warpgroup each warp has 16 rows. A turn of rows of weights is else multiplied in one of two ways:
//
//   intra-block split-K  a group of rows, of whose chunks the warpgroups have every fourth (or second) one. What they
//                        sum is added up in shared memory when the turn is done.
//   N-parallel           as many groups as there are warpgroups, a group each, with chunks of the groups in turn in the
//                        stream. All of them want the same activations at about the same time, which come from the L2
//                        once, and sums are complete in registers.
//
// Either way the order of sums is that of the layout, so the same bits every run.
//
// Norms are in parts here (rowwise/rmsnorm.cuh): activations come with the norm's weight, and sums are scaled.
//
// In a kernel of its own on an H200, turns of 64 rows of 4096 columns stream at 4.35 TB/s, of 4.6 without activations:
// those that each block reads for every turn are as many bytes as 64 rows of weights, and a chunk takes 0.50 us instead
// of 0.47. With turns of 32 rows, twice as many bytes, it takes 0.57. Where weights come at no cost that is 0.29 and
// 0.41.
#pragma once

#include "megalith/kernels/cuda/arch/wgmma.cuh"
#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"
#include "megalith/kernels/cuda/mainloop/gemv_mainloop.cuh"
#include "megalith/kernels/cuda/pipeline/partner.cuh"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/shared_budget.h"

namespace megalith::kernels {

/// Of eight rows of weights, 16 columns.
inline constexpr u32 kStepBytes = 256;
/// Where a step of a chunk's rows of weights lies. `chunk`: its address.
template <int kChunkRows>
inline SharedMatrix weights_at(u32 chunk, u32 step) {
  return shared_matrix(chunk, step * kStepBytes, 128, static_cast<u32>(stream::wide_block_bytes(kChunkRows)));
}

/// What would lie outside the tensor is taken from inside it: such rows are nobody's, and weights past the last column are
/// zeros. So a load is nothing but a load, which the tensor cores insist on while they work on other registers.
template <Half T, i64 kRows, i64 kColumns>
inline Quads load_quads(Blocked<const T, kRows, kColumns> x, int m, int block) {
  constexpr int kTiles = static_cast<int>(kRows) / row_blocks::kRows;
  const T* const tile = x.at + (block * kTiles + m) * 512;
  if constexpr (row_blocks::are_shared(kRows)) {
    const auto step = [&](const T* from) {
      return uint4{load_pair(from), load_pair(from + 256), load_pair(from + 64), load_pair(from + 320)};
    };
    return {step(tile + lane() * 2), step(tile + 128 + lane() * 2)};
  }
  const T* const from = tile + lane() * 8;
  return {load_quad(from), load_quad(from + 256)};
}
/// Row by row, for a tensor that somebody else needs so.
template <Half T, i64 kRows, i64 kColumns>
struct RowByRow {
  const T* at;
};
template <Half T, i64 kRows, i64 kColumns>
struct ElementOf<RowByRow<T, kRows, kColumns>> {
  using Type = T;
};
template <Half T, i64 kRows, i64 kColumns>
inline Quads load_quads(RowByRow<T, kRows, kColumns> x, int m, int block) {
  const int row = m * row_blocks::kRows + lane() / 4, column = block * row_blocks::kColumns + lane() % 4 * 8;
  const auto pair = [&](int r, int c) {
    return load_pair(x.at + min(r, static_cast<int>(kRows) - 1) * kColumns + min(c, static_cast<int>(kColumns) - 2));
  };
  const auto step = [&](int c) {
    return uint4{pair(row, c), pair(row + 8, c), pair(row, c + 2), pair(row + 8, c + 2)};
  };
  return {step(column), step(column + 4)};
}
template <class Args, Half T, i64 kRows, i64 kColumns>
inline auto wide_rows(const Args&, Blocked<const T, kRows, kColumns> x) {
  return x;
}
template <class Args, Half T>
inline auto wide_rows(const Args&, const T* x) {
  return RowByRow<T, Args::T_largest, Args::K>{x};
}
/// Rows of weights may be cut into split-K slices: those of slice `s`, of L columns each.
template <class Args, Half T, i64 kRows, i64 kColumns>
inline auto slice_of_rows(const Args&, Blocked<const T, kRows, kColumns> x, int s) {
  static_assert(Args::L % row_blocks::kColumns == 0);
  return decltype(x){x.at + s * static_cast<int>(Args::L * kRows)};
}
template <class Args, Half T>
inline auto slice_of_rows(const Args&, const T* x, int s) {
  return RowByRow<T, Args::T_largest, Args::S * Args::L>{x + s * static_cast<int>(Args::L)};
}
/// Columns that a task takes.
template <class Args>
constexpr i64 columns_of_task() {
  if constexpr (requires { Args::S; })
    return Args::L;
  else
    return Args::kStream.partners ? Args::K / 2 : Args::K;
}
/// Of those of two tasks that are partners (pipeline/partner.cuh) the second half, or the first.
template <class Args, Half T, i64 kRows, i64 kColumns>
inline auto half_of_columns(const Args&, Blocked<const T, kRows, kColumns> x, bool is_second) {
  static_assert(kColumns / 2 % row_blocks::kColumns == 0);
  return decltype(x){x.at + (is_second ? static_cast<int>(kColumns / 2 * kRows) : 0)};
}
template <class Args, Half T>
inline auto half_of_columns(const Args&, const T* x, bool is_second) {
  return RowByRow<T, Args::T_largest, Args::K>{x + (is_second ? static_cast<int>(Args::K / 2) : 0)};
}

/// Rows of activations of a task: which is the first, and how many there are.
template <class Args>
inline int first_token(const Args& args) {
  if constexpr (Args::T_largest <= stream::kTileRows)
    return 0;
  else
    return static_cast<int>(args.t_begin);
}
template <class Args>
inline int num_tokens(const Args& args) {
  if constexpr (Args::T_largest <= stream::kTileRows)
    return static_cast<int>(args.T);
  else
    return static_cast<int>(min(args.T, args.t_end) - args.t_begin);
}

/// Of the activations which 16 rows a warp has; and which part of a turn: every kParts-th chunk from this one on, or
/// which of the groups that are N-parallel.
template <int kParts>
inline int wide_row_tile() {
  return warp() / 4 / kParts * 4 + warp() % 4;
}
template <int kParts>
inline int wide_part() {
  return warp() / 4 % kParts;
}

/// What the warpgroups sum, of a row of activations those of a turn. Where weights are int8 a warpgroup's 64 rows have
/// room for a span of them as floats.
template <int kChunkRows, int kParts, bool kAreInt8>
inline f32* wide_sums(int part, int row) {
  constexpr int kStride = static_cast<int>(stream::wide_stride(kChunkRows)), kRows = 4 / kParts * stream::kWideRows;
  f32* const sums = reinterpret_cast<f32*>(shared_area());
  if constexpr (!kAreInt8) return sums + (part * kRows + row) * kStride;
  constexpr int kOfGroup = static_cast<int>(stream::wide_group_bytes(kChunkRows, true)) / 4;
  return sums + (part * kRows + row) / stream::kWideRows * kOfGroup + row % stream::kWideRows * kStride;
}
/// How the warpgroups divide a turn's work, kParts of them for the same activations: the chunks of one group of rows,
/// or as many groups.
template <int kWarpgroups, bool kIsNParallel>
struct Shares {
  static constexpr int kParts = kWarpgroups;
  static constexpr bool kNParallel = kIsNParallel;
  /// Of one group, whose sums no warpgroup has to add to.
  static constexpr bool kOwnRows = kNParallel && kParts == 1;
  /// Of a group's chunks the first one of a warpgroup, and how far it is from there to its next.
  static int first() { return kNParallel ? 0 : wide_part<kParts>(); }
  static constexpr int kStep = kNParallel ? 1 : kParts;

  /// The group of a turn that a warp finishes, and rows of activations: N-parallel those that it multiplied.
  static int group() { return kNParallel ? wide_part<kParts>() : 0; }
  static constexpr int kRows = kNParallel ? row_blocks::kRows : 4 / kParts * stream::kWideRows / kWarps;
  static int first_row() { return (kNParallel ? wide_row_tile<kParts>() : warp()) * kRows; }
};
/// Of turns of at most `kGroups` groups.
template <class Args, int kGroups>
using SharesOf = Shares<stream::wide_parts(Args::T_largest), (kGroups > 1)>;

/// A warp's activations, a few blocks of columns ahead of those that it multiplies: of its chunks, and behind the last
/// one of a turn those of the first one again, for the next turn. Behind the last turn nothing is asked of the L2, whom
/// the next stage asks then: the last block is loaded again and again, which the first-level cache has.
template <int kChunkRows, int kSpans, class Shares, class X>
class ActivationsAhead {
 public:
  static constexpr bool kAreShared = false;
  static constexpr int kBlocks = stream::wide_columns(kChunkRows) / row_blocks::kColumns;  // of a span
  /// With all of a chunk's, for which there are registers, Qwen3-8B takes 5.75 ms with 64 rows instead of 5.61.
  static constexpr int kAhead = kBlocks > 5 ? kBlocks / 2 : kBlocks;

  /// Of `rows` rows from `first` on.
  ActivationsAhead(X x, int first, int rows, int columns)
      : x_(x),
        m_(first / row_blocks::kRows + min(wide_row_tile<Shares::kParts>(), max(rows - 1, 0) / row_blocks::kRows)),
        last_((columns + row_blocks::kColumns - 1) / row_blocks::kColumns - 1),
        next_(Shares::first()) {
#pragma unroll
    for (int block = 0; kSpans == 1 && block < kAhead; ++block) put(block, next_ * kBlocks + block);
  }

  /// Chunks of a group.
  int count() const { return last_ / (kSpans * kBlocks) + 1; }
  /// Chunk `chunk` of a group is multiplied; `is_last`: in the last turn.
  void chunk_begins(int chunk, bool is_last) {
    now_ = chunk;
    next_ = chunk + Shares::kStep < count() ? chunk + Shares::kStep : is_last ? count() : Shares::first();
  }
  /// Where a chunk has several spans, span `span` of the group. Weights had the registers until now, so all of its
  /// blocks are still to be asked for.
  void span_begins(int span) {
    now_ = span;
#pragma unroll
    for (int block = 0; block < kAhead; ++block) put(block, now_ * kBlocks + block);
  }
  /// Of the span.
  const Quads& operator[](int block) const { return quads_[block % kAhead]; }
  /// In the place of a block of the span what is kAhead blocks further.
  void replace(int block) {
    const int ahead = block + kAhead;
    if (kSpans > 1 && ahead >= kBlocks) return;
    put(block, ahead < kBlocks ? now_ * kBlocks + ahead : next_ * kBlocks + ahead - kBlocks);
  }

 private:
  void put(int place, int block) { quads_[place % kAhead] = load_quads(x_, m_, min(block, last_)); }

  const X x_;
  const int m_, last_;
  int now_ = 0, next_;  // spans, of which a chunk is one or two
  Quads quads_[kAhead];
};

/// Turn by turn the warp's share of the chunks from `ring` on, times the activations `x`.
template <int kChunkRows, class Shares, class Weights>
class WideSums {
  using T = typename Weights::Element;
  static constexpr int kSums = kChunkRows / 2, kParts = Shares::kParts, kSpans = Weights::kSpans;

 public:
  /// Of a turn of `groups` groups, of activations that come to registers. Where the warp's next chunk would lie.
  template <class Activations>
  RingPlace multiply(RingPlace ring, Activations& x, int groups, bool is_last) {
    constexpr int kBlocks = Activations::kBlocks;
    const int chunks = x.count();
    const u32 apart = static_cast<u32>(Shares::kNParallel ? groups : kParts);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum_[i] = 0;
    RingPlace place = ring.any_further(static_cast<u32>(wide_part<kParts>()));
#pragma unroll 1
    for (int chunk = Shares::first(); chunk < chunks; chunk += Shares::kStep) {
      if (kSpans == 1) x.chunk_begins(chunk, is_last);
      const u32 weights = shared_address(Weights::kAreInt8 ? widened_span() : ring_slot(place.slot));
      while (!all_of_warp(barrier_passed(&ring_barriers().full[place.slot], place.parity))) {}
#pragma unroll 1
      for (int span = 0; span < kSpans; ++span) {
        if constexpr (Weights::kAreInt8) {
          widen_next_span(place.slot, span, weights);
          x.span_begins(chunk * kSpans + span);
        }
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          wide_begin();
#pragma unroll
          for (int step = 0; step < 2; ++step)
            wide_multiply(T{}, sum_, x[block].steps[step], weights_at<kChunkRows>(weights, block * 2 + step));
          wide_commit();
          // Registers of the block before are done with, and take what comes next.
          if (block > 0) {
            wide_wait<1>();
            x.replace(block - 1);
          }
        }
        wide_wait<0>();
        if (!Weights::kAreInt8) give_back(place.slot);
        x.replace(kBlocks - 1);
      }
      place = Shares::kOwnRows ? place + 1 : place.any_further(apart);
    }
    if (Weights::kAreInt8) warpgroup_sync();  // sums take the place of weights
    return place;
  }
  /// Of a group, of activations that come to shared memory, of which the warpgroup has 64 rows. While a warpgroup waits for what
  /// it handed to the tensor cores they have what the others did, and slots are free early: with one more multiplication of
  /// its own under way a slot more is held, and a multiplication takes as long or longer.
  template <class Activations>
  RingPlace multiply_shared(RingPlace ring, Activations& x) {
    constexpr int kSlots = Activations::kSlots, kSteps = 2 * stream::kSlotBlocks;
    const int chunks = x.count();
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum_[i] = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, ring = ring + 1) {
      const u32 weights = shared_address(Weights::kAreInt8 ? widened_span() : ring_slot(ring.slot));
      while (!all_of_warp(barrier_passed(&ring_barriers().full[ring.slot], ring.parity))) {}
#pragma unroll 1
      for (int span = 0; span < kSpans; ++span) {
        if constexpr (Weights::kAreInt8) widen_next_span(ring.slot, span, weights);
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
          x.take();
          wide_begin();
#pragma unroll
          for (int step = 0; step < kSteps; ++step)
            wide_multiply(T{}, sum_, x.of_step(step), weights_at<kChunkRows>(weights, slot * kSteps + step));
          wide_commit();
          wide_wait<0>();
          x.give_back();
        }
      }
      if (!Weights::kAreInt8) give_back(ring.slot);
    }
    return ring;
  }
  /// The same of a turn by warps without rows: what others need of them is that they take it.
  template <class Activations>
  static RingPlace pass(RingPlace ring, Activations& x) {
#pragma unroll 1
    for (int chunk = 0; chunk < x.count(); ++chunk, ring = ring.any_further(1)) {
      while (!all_of_warp(barrier_passed(&ring_barriers().full[ring.slot], ring.parity))) {}
      give_back(ring.slot);
      x.pass_chunk();
    }
    return ring;
  }
  /// Of a group that two blocks have multiplied (pipeline/partner.cuh): the other one's sums are added to this one's half of
  /// them, which takes the places of the first half. By all warps; those without sums call hand_nothing_over().
  void hand_over(bool is_second) {
    constexpr int kHalf = kSums / 2, kQuads = kHalf / 4;
    constexpr u32 kApart = static_cast<u32>(kThreads) * 16;
    static_assert(kHalf % 4 == 0);
    // First the half that stays, then the one that goes.
    if (is_second) {
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const f32 goes = sum_[i];
        sum_[i] = sum_[kHalf + i];
        sum_[kHalf + i] = goes;
      }
    }
    u32 mine = keep(shared_address(shared_area()) + static_cast<u32>(thread()) * 16);
    warp_sync();
    partner_arrive(&partner_state.ready);
    if (partner_wait(&partner_state.ready)) {
      const u32 there = at_partner(mine);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const f32* const of = sum_ + kHalf + 4 * q;
        partner_store(there + static_cast<u32>(q) * kApart, {of[0], of[1], of[2], of[3]});
      }
    }
    warp_sync();
    partner_arrive(&partner_state.full);
    partner_wait(&partner_state.full);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float4 theirs = load_from_partner(mine + static_cast<u32>(q) * kApart);
      f32* const of = sum_ + 4 * q;
      of[0] += theirs.x, of[1] += theirs.y, of[2] += theirs.z, of[3] += theirs.w;
    }
  }
  /// Where nobody adds to them, straight from registers: of the lane's row of the warp's 16, lane / 4 or with `half` eight
  /// further, the sums of places 8 i + lane % 4 * 2 and the next.
  float2 pair(int i, int half) const { return {sum_[4 * i + 2 * half], sum_[4 * i + 2 * half + 1]}; }
  /// To where sum() finds them, behind a barrier: of the warp if groups are N-parallel, else of the block.
  void put() const {
    const int first_row = wide_row_tile<kParts>() * row_blocks::kRows + lane() / 4;
#pragma unroll
    for (int j = 0; j < kChunkRows / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const f32* const of_tile = sum_ + 4 * j + 2 * half;
        f32* const to = sums_at(wide_part<kParts>(), first_row + 8 * half);
        *reinterpret_cast<float2*>(to + 8 * j + lane() % 4 * 2) = {of_tile[0], of_tile[1]};
      }
  }
  /// Of row `row` of activations with places n and n + 1 of the group's rows of weights.
  static float2 sum(int row, int n) {
    const auto of = [&](int part) { return *reinterpret_cast<const float2*>(sums_at(part, row) + n); };
    if (Shares::kNParallel) return of(wide_part<kParts>());
    float2 total = {0, 0};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float2 of_part = of(part);
      total.x += of_part.x;
      total.y += of_part.y;
    }
    return total;
  }

  static f32* sums_at(int part, int row) { return wide_sums<kChunkRows, kParts, Weights::kAreInt8>(part, row); }

 private:
  /// A slot is free when kWarps have arrived, of which a chunk has 4 or 8 here.
  static void give_back(u32 slot) {
    if (kEveryThreadArrives) {
      for (int i = 0; i < kParts; ++i) barrier_arrive(&ring_barriers().empty[slot]);
    } else if (lane() < kParts) {
      barrier_arrive(&ring_barriers().empty[slot]);
    }
  }

  // Of weights in int8 a warpgroup has a span at a time as floats, where its sums will be.
  static constexpr int kThreadsOfGroup = 4 * kWarpLanes;
  static void warpgroup_sync() { part_sync(warp() / 4, kThreadsOfGroup); }
  static u8* widened_span() {
    if (Shares::kOwnRows)
      return shared_area() + stream::wide_widened_at(kWorkerConfig.stream_rows) + warp() / 4 * stream::kChunkBytes;
    return reinterpret_cast<u8*>(sums_at(wide_part<kParts>(), wide_row_tile<kParts>() / 4 * stream::kWideRows));
  }
  /// Where the span before was, which is multiplied. Behind the last one the slot is free.
  static void widen_next_span(u32 slot, int span, u32 to) {
    warpgroup_sync();
    widen_span(slot, span, to);
    if (span + 1 == kSpans) {
      warp_sync();
      give_back(slot);
    }
    fence_writes_before_multiply();
    warpgroup_sync();
  }
  /// By the warpgroup. `to`: the address of widened_span(). A thread has the same columns of every eighth row, and nothing
  /// of it is worked out in advance, for which the activations leave no registers.
  static void widen_span(u32 slot, int span, u32 to) {
    constexpr u32 kColumns = stream::wide_columns(kChunkRows), kRuns = kColumns / int8::kRun;
    constexpr u32 kBytes = kColumns * kChunkRows;
    const u32 me = keep(threadIdx.x % kThreadsOfGroup), row = me % 8;
    const u32 from = shared_address(ring_slot(slot)) + span * kBytes,
              scales = shared_address(ring_scales(slot)) + span * (kRuns * kChunkRows * 2) + row / 2 * 4;
#pragma unroll 1
    for (u32 piece = me; piece < kColumns; piece += kThreadsOfGroup) {
      u32 at = keep(from + piece * 8), scale_at = keep(scales + piece / int8::kRun * (kChunkRows * 2)),
          put_at = keep(to + piece * 16);
#pragma unroll 1
      for (u32 left = kChunkRows / 8; left > 0; --left) {
        const uint2 bytes = load_shared_eight(at);
        const u32 scale = scale_pair(T{}, (load_shared_pair(scale_at) >> row % 2 * 16 & 0xffff) * 0x10001u);
        const auto value = [&](u32 four) { return product(T{}, widened(T{}, four), scale); };
        store_shared(put_at, uint4{value(bytes.x), value(bytes.x >> 8), value(bytes.y), value(bytes.y >> 8)});
        at += kColumns * 8;
        scale_at += 8 * 2;
        put_at += kColumns * 16;
      }
    }
  }

  f32 sum_[kSums];
};

/// The scale of each row's norm, from its squares: a warp adds up those of a row, several rows at a time. By the block;
/// there after its next barrier.
__shared__ f32
    few_wide_scales[kWorkerConfig.stream_rows > stream::kWideRows ? 2 * stream::kWideRows : stream::kWideRows];
template <class Args>
inline f32* wide_scales() {
  if constexpr (stream::wide_parts(Args::T_largest) == 1)
    return reinterpret_cast<f32*>(shared_area() + stream::wide_scales_at(Args::T_largest, kScaleBytes > 0));
  else
    return few_wide_scales;
}
template <class Args>
inline void find_scales(const Args& args) {
  // Side by side in memory: with two lanes a row, 256 rows of 128 sums took 10 us instead of 1.
  constexpr int C = static_cast<int>(Args::C), kTokens = static_cast<int>(stream::tile_rows(Args::T_largest)),
                kRows = (kTokens + kWarps - 1) / kWarps, kWidth = C % 4 == 0 ? 4 : 1,
                kStep = static_cast<int>(kWarpLanes) * kWidth, kSteps = (C + kStep - 1) / kStep,
                kInFlight = kSteps * kWidth < 32 ? 32 / (kSteps * kWidth) : 1,
                kAtOnce = kInFlight < kRows ? kInFlight : kRows;
  const int first = warp() * kRows, before = first_token(args), last = max(before + num_tokens(args) - 1, 0);
#pragma unroll 1
  for (int done = 0; done < kRows; done += kAtOnce) {
    float4 fours[kAtOnce][kSteps];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const f32* const from = args.squares + min(before + first + done + i, last) * C + lane() * kWidth;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        fours[i][step] = {};
        if (lane() * kWidth + step * kStep >= C) continue;
        if constexpr (kWidth == 4)
          fours[i][step] = *reinterpret_cast<const float4*>(from + step * kStep);
        else
          fours[i][step].x = from[step * kStep];
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      f32 total = 0;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const float4 four = fours[i][step];
        total += (four.x + four.y) + (four.z + four.w);
      }
      total = warp_all(total, Add{});
      const int row = first + done + i;
      if (lane() == 0 && done + i < kRows && row < kTokens)
        wide_scales<Args>()[row] =
            fast_rsqrt(fast_divide(total, static_cast<f32>(static_cast<int>(Args::K))) + Args::eps);
    }
  }
}

/// Most groups of a turn: those of `n_parallel`, or one where the ring is too short for that.
constexpr int wide_most_groups(int n_parallel) { return stream::is_n_parallel(kRingSlots) ? n_parallel : 1; }

/// The operand that is streamed, or one of two that are alike.
template <class Args>
inline auto wide_operand(const Args& args) {
  if constexpr (requires { args.weight; })
    return args.weight;
  else
    return args.gate;
}

/// All turns of a task, of up to kGroups groups, each of kChunkRows rows of weights, from `begin` in steps of `step` up
/// to `end`. `finish(at, first_row, last_row, sum)`: by each warp, for the rows of activations that are its own of the
/// group at `at`, whose sums `sum(row, n)` tells. `meanwhile()`: once, by the block, while the first activations are on
/// their way; what it leaves is there for `finish`.
template <int kChunkRows, int kGroups, class X, class Args, class Meanwhile, class Finish>
inline void wide_turns(const Args& args, X x, int begin, int end, int step, Meanwhile meanwhile, Finish finish) {
  using Mine = SharesOf<Args, kGroups>;
  using Weights = WeightsOf<decltype(wide_operand(args))>;
  using Sums = WideSums<kChunkRows, Mine, Weights>;
  RingPlace ring = args.ring;
  inputs_are_ready(args.epoch);
  ActivationsAhead<kChunkRows, Weights::kSpans, Mine, X> activations(x, 0, static_cast<int>(args.T),
                                                                     static_cast<int>(columns_of_task<Args>()));
  meanwhile();
#pragma unroll 1
  for (int at = begin; at < end;) {
    const int groups = stream::wide_turn((end - at + step - 1) / step, kGroups);
    const bool has_group = Mine::group() < groups;
    // Where weights were int8 they lie where sums do.
    if (Weights::kAreInt8 && (!Mine::kNParallel || at == begin)) block_sync();
    if (has_group) {
      Sums sums;
      sums.multiply(ring, activations, groups, at + groups * step >= end);
      if (!Weights::kAreInt8 && !Mine::kNParallel && at > begin) block_sync();  // those before were read
      sums.put();
    }
    if (!Mine::kNParallel || at == begin)
      block_sync();
    else
      warp_sync();
    const int first_row = Mine::first_row(), last_row = min(first_row + Mine::kRows, static_cast<int>(args.T));
    if (has_group) finish(at + Mine::group() * step, first_row, last_row, Sums::sum);
    if (Mine::kNParallel) warp_sync();
    ring = ring.any_further(static_cast<u32>(activations.count() * groups));
    at += groups * step;
  }
}
}  // namespace megalith::kernels
