// Puts the chunks of attention together on a GPU.
#pragma once

#include "megalith/kernels/cuda/attention/dealt_rows.cuh"
#include "megalith/kernels/cuda/mainloop/gemv_mainloop.cuh"

namespace megalith::kernels {

/// The fewest lanes, side by side, that have one of `count` values each, if a warp is whole times as many.
constexpr int span_of(int count) {
  int span = 1;
  while (span < count) span *= 2;
  return span;
}
/// Of the values of kSpan lanes what `op` makes of all, as warp_all() does.
template <int kSpan, class Op>
inline f32 span_all(f32 value, Op op) {
#pragma unroll
  for (int apart = kSpan / 2; apart > 0; apart /= 2) value = op(value, from_lane(value, apart));
  return value;
}

/// A head at a time, of one or two rows of up to C chunks: every warp works out what its chunks weigh, groups of threads sum a
/// share of them each.
template <int C, class Args>
inline void combine_up_to(const Args& args, int dealt) {
  constexpr int D = static_cast<int>(Args::D), A = static_cast<int>(Args::A);
  constexpr int kPairs = D / 2, kGroups = kThreads / kPairs, kPerGroup = (C + kGroups - 1) / kGroups;
  constexpr int kRows = Args::T_largest > 1 && kGroups > 1 ? 2 : 1;  // whose loads are under way together
  static_assert(C <= kWarpLanes && kThreads % kPairs == 0);
  float2* const sums = reinterpret_cast<float2*>(area_behind_sums());  // [kRows, kGroups, kPairs]
  constexpr int kSpan = span_of(C);                                    // of lanes that have all chunks
  const int p = thread() % kPairs, group = thread() / kPairs;
  const bool puts_together = warp() * static_cast<int>(kWarpLanes) / kPairs < kRows;  // the warp, below
  const int t_begin = static_cast<int>(args.t_begin), t_end = static_cast<int>(min(args.t_end, rows_of(args))),
            a_end = static_cast<int>(args.a_end);
#pragma unroll 1
  for (int first = t_begin; first < t_end; first += kRows) {
    // Of each row; the first one has the most.
    int num_chunks[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) num_chunks[row] = chunks_of_row<Args>(min(first + row, t_end - 1), dealt);
#pragma unroll 1
    for (int a = static_cast<int>(args.a_begin); a < a_end; ++a) {
      // Of a lane's chunk what it weighs, and of a share of the chunks the parts; past the last one that one again.
      const auto head = [&](int row, int c) {
        return (min(first + row, t_end - 1) + min(c, num_chunks[row] - 1) * dealt) * A + a;
      };
      const auto weighs_at = [&](int row) { return eight_at(args.softmax, 2 * head(row, lane() % kSpan)); };
      const auto part_at = [&](int i) {
        return eight_at(args.part, head(i / kPerGroup, group + i % kPerGroup * kGroups) * D + 2 * p);
      };
      Eights<decltype(weighs_at(0)), kRows> weighs;
      Eights<decltype(part_at(0)), kRows * kPerGroup> parts;
#pragma unroll
      for (int row = 0; row < kRows; ++row) weighs.look(row, weighs_at(row));
#pragma unroll
      for (int i = 0; i < kRows * kPerGroup; ++i) parts.look(i, part_at(i));
      weighs.wait(weighs_at, args.epoch);
      parts.wait(part_at, args.epoch);
      inputs_are_ready(args.epoch);
      f32 totals[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float2 softmax = two_f32(weighs.get(row));
        const bool is_chunk = lane() % kSpan < num_chunks[row];
        const f32 top = is_chunk ? softmax.x : -kInfinity, largest = span_all<kSpan>(top, Larger{});
        const f32 weight = fast_exp(top - largest);
        float2 sum = {0, 0};
#pragma unroll
        for (int i = 0; i < kPerGroup; ++i) {
          const int c = group + i * kGroups;
          const f32 share = __shfl_sync(0xffffffffu, weight, c % kWarpLanes);
          const float2 part = two_f32(parts.get(row * kPerGroup + i));
          if (c < num_chunks[row]) {
            sum.x = fma(share, part.x, sum.x);
            sum.y = fma(share, part.y, sum.y);
          }
        }
        sums[row * kThreads + thread()] = sum;
        totals[row] = puts_together ? span_all<kSpan>(is_chunk ? weight * softmax.y : 0, Add{}) : 0;
      }
      block_sync();
      // A group of threads puts a row's sums together.
      if (group < kRows && first + group < t_end) {
        float2 y = {0, 0};
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          y.x += sums[group * kThreads + i * kPairs + p].x;
          y.y += sums[group * kThreads + i * kPairs + p].y;
        }
        f32 total = totals[0];
#pragma unroll
        for (int row = 1; row < kRows; ++row)
          if (group == row) total = totals[row];
        const f32 factor = fast_divide(1.0f, total);
        put_pair(args.y, ((first + group) * A + a) * D + 2 * p, y.x * factor, y.y * factor, args.epoch);
      }
      if (a + 1 < a_end || first + kRows < t_end) block_sync();
    }
  }
}
/// As many loads as there are chunks are under way together, so with few chunks it is done another way.
template <class Args>
inline void combine_kv_splits(const Args& args) {
  constexpr int kGroups = 2 * kThreads / static_cast<int>(Args::D), kMost = kMostChunks<Args>,
                kFew = kGroups < kMost ? kGroups : kMost;
  const int dealt = dealt_rows<Args>(static_cast<int>(rows_of(args)));
  if constexpr (kFew < kMost)
    if (chunks_of_row<Args>(static_cast<int>(args.t_begin), dealt) > kFew) return combine_up_to<kMost>(args, dealt);
  combine_up_to<kFew>(args, dealt);
}

}  // namespace megalith::kernels
