// Heads of a decoder's attention on a GPU, from the fused projection `qkv`: for each group of query heads the M heads,
// then their key, then their value. q/k norm and rotation are worked out by whoever needs a head, because that costs
// less than another exchange between workers.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

/// One head of one row by one warp: each lane has values 2 p, 2 p + 1 and, half a head further, their partners in the
/// rotation, for p = lane, lane + 32, ... `norm` and `cosine` may be null: then the head is neither normalised nor
/// rotated. put(d, value of d, value of d + 1) gets each pair.
template <int D, class X, class Put>
inline void each_head_pair(X x, int first, const bf16* norm, f32 eps, const f32* cosine, const f32* sine, Epoch epoch,
                           Put put) {
  constexpr int kHalf = D / 2, kPairs = D / 4, kPerLane = (kPairs + kWarpLanes - 1) / kWarpLanes;
  float2 low[kPerLane], high[kPerLane], c[kPerLane], s[kPerLane];
  u32 factors[kPerLane], more[kPerLane];
  f32 squares = 0;
  // All that is loaded is under way before anything is waited for.
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int p = min(lane() + i * kWarpLanes, kPairs - 1);
    factors[i] = more[i] = 0;
    c[i] = s[i] = {0, 0};
    if (norm != nullptr) {
      factors[i] = *reinterpret_cast<const u32*>(norm + 2 * p);
      more[i] = *reinterpret_cast<const u32*>(norm + kHalf + 2 * p);
    }
    if (cosine != nullptr) {
      c[i] = *reinterpret_cast<const float2*>(cosine + 2 * p);
      s[i] = *reinterpret_cast<const float2*>(sine + 2 * p);
    }
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int p = min(lane() + i * kWarpLanes, kPairs - 1);
    u32 a, b;
    get_two_pairs(x, first + 2 * p, first + kHalf + 2 * p, epoch, a, b);
    low[i] = {low_f32(a), high_f32(a)};
    high[i] = {low_f32(b), high_f32(b)};
    if (lane() + i * kWarpLanes < kPairs)
      squares =
          fma(low[i].x, low[i].x, fma(low[i].y, low[i].y, squares)) + fma(high[i].x, high[i].x, high[i].y * high[i].y);
  }
  f32 scale = 1;
  if (norm != nullptr) scale = fast_rsqrt(warp_all(squares, Add{}) * (1.0f / D) + eps);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int p = lane() + i * kWarpLanes;
    if (p < kPairs) {
      float2 a = low[i], b = high[i];
      if (norm != nullptr) {
        a = {a.x * scale * low_f32(factors[i]), a.y * scale * high_f32(factors[i])};
        b = {b.x * scale * low_f32(more[i]), b.y * scale * high_f32(more[i])};
      }
      if (cosine != nullptr) {
        const float2 turned = {a.x * c[i].x - b.x * s[i].x, a.y * c[i].y - b.y * s[i].y};
        b = {b.x * c[i].x + a.x * s[i].x, b.y * c[i].y + a.y * s[i].y};
        a = turned;
      }
      put(2 * p, a.x, a.y);
      put(kHalf + 2 * p, b.x, b.y);
    }
  }
}

/// Place e of group g in row t of `qkv`, whose position is given; `norm` and rotation only for queries and keys.
template <class Args, class Put>
inline void each_qkv_pair(const Args& args, int t, int position, int g, int e, const bf16* norm, bool rotates,
                          Put put) {
  constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G), E = static_cast<int>(Args::E);
  f32 eps = 0;
  if constexpr (requires { Args::eps; }) eps = Args::eps;
  const int row = position * (D / 2);
  each_head_pair<D>(args.qkv, ((t * G + g) * E + e) * D, norm, eps, rotates ? args.cosine + row : nullptr,
                    args.sine + row, args.epoch, put);
}

}  // namespace megalith::kernels
