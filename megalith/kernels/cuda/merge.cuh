// Puts the chunks of attention together on a GPU.
#pragma once

#include "megalith/kernels/cuda/multiply.cuh"

namespace megalith::kernels {

/// A head at a time: every warp works out what its chunks weigh, groups of threads sum a share of them each.
template <class Args>
inline void merge_chunks(const Args& args) {
  constexpr int D = static_cast<int>(Args::D), C = static_cast<int>(Args::C), A = static_cast<int>(Args::A);
  constexpr int kPairs = D / 2, kGroups = kThreads / kPairs, kPerGroup = (C + kGroups - 1) / kGroups;
  static_assert(C <= kWarpLanes && kThreads % kPairs == 0);
  float2* const sums = reinterpret_cast<float2*>(area_behind_sums());  // [kGroups, kPairs]
  const int p = thread() % kPairs, group = thread() / kPairs;
  const int t_end = static_cast<int>(min(args.t_end, rows_of(args))), a_end = static_cast<int>(args.a_end);
#pragma unroll 1
  for (int t = static_cast<int>(args.t_begin); t < t_end; ++t)
#pragma unroll 1
    for (int a = static_cast<int>(args.a_begin); a < a_end; ++a) {
      // Of chunk `lane` what it weighs, and of a share of the chunks the parts, the last one's again past it.
      const auto weighs_at = [&](int) { return eight_at(args.softmax, 2 * ((t * C + min(lane(), C - 1)) * A + a)); };
      const auto part_at = [&](int i) {
        return eight_at(args.part, ((t * C + min(group + i * kGroups, C - 1)) * A + a) * D + 2 * p);
      };
      Eights<decltype(weighs_at(0)), 1> weighs;
      Eights<decltype(part_at(0)), kPerGroup> parts;
      weighs.look(0, weighs_at(0));
#pragma unroll
      for (int i = 0; i < kPerGroup; ++i) parts.look(i, part_at(i));
      weighs.wait(weighs_at, args.epoch);
      parts.wait(part_at, args.epoch);
      inputs_are_ready(args.epoch);
      const float2 softmax = two_f32(weighs.get(0));
      const f32 top = lane() < C ? softmax.x : -kInfinity, largest = warp_all(top, Larger{});
      const f32 weight = fast_exp(top - largest);
      float2 sum = {0, 0};
#pragma unroll
      for (int i = 0; i < kPerGroup; ++i) {
        const int c = group + i * kGroups;
        const f32 share = __shfl_sync(0xffffffffu, weight, c % kWarpLanes);
        const float2 part = two_f32(parts.get(i));
        if (c < C) {
          sum.x = fma(share, part.x, sum.x);
          sum.y = fma(share, part.y, sum.y);
        }
      }
      sums[thread()] = sum;
      const f32 total = warp_all(lane() < C ? weight * softmax.y : 0, Add{});
      block_sync();
      if (thread() < kPairs) {
        float2 y = {0, 0};
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          y.x += sums[i * kPairs + p].x;
          y.y += sums[i * kPairs + p].y;
        }
        const f32 factor = fast_divide(1.0f, total);
        put_pair(args.y, (t * A + a) * D + 2 * p, y.x * factor, y.y * factor, args.epoch);
      }
      if (a + 1 < a_end || t + 1 < t_end) block_sync();
    }
}

}  // namespace megalith::kernels
