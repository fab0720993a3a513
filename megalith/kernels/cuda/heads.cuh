// Heads of a decoder's attention on a GPU, from the fused projection `qkv`: for each group of query heads the M heads,
// then their key, then their value. q/k norm and rotation are worked out by whoever needs a head, because that costs
// less than another exchange between workers.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

/// One head of one row by one warp: each lane has values 2 p, 2 p + 1 and, half a head further, their partners in the
/// rotation, for p = lane, lane + 32, ... What is loaded can be under way for several heads.
template <int D, bool kNorm>
class HeadPairs {
  static constexpr int kHalf = D / 2, kPairs = D / 4, kPerLane = (kPairs + kWarpLanes - 1) / kWarpLanes;

 public:
  /// `is_turned`: a query or a key, which are normalised if there is a norm, and rotated; a value is neither.
  ///
  /// That is said, and not told by pointers that are null: of those ptxas 13.0 made a load from address 0 (sm_90a,
  /// docs/performance/h200-history.md).
  template <class X>
  void load(X x, int first, const bf16* norm, const f32* cosine, const f32* sine, bool is_turned, Epoch epoch) {
    is_turned_ = is_turned;
    // All that is loaded is under way before anything is waited for.
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = min(lane() + i * kWarpLanes, kPairs - 1);
      factors_[i] = more_[i] = 0;
      cosine_[i] = sine_[i] = {0, 0};
      if (kNorm && is_turned_) {
        factors_[i] = *reinterpret_cast<const u32*>(norm + 2 * p);
        more_[i] = *reinterpret_cast<const u32*>(norm + kHalf + 2 * p);
      }
      if (is_turned_) {
        cosine_[i] = *reinterpret_cast<const float2*>(cosine + 2 * p);
        sine_[i] = *reinterpret_cast<const float2*>(sine + 2 * p);
      }
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = min(lane() + i * kWarpLanes, kPairs - 1);
      get_two_pairs(x, first + 2 * p, first + kHalf + 2 * p, epoch, low_[i], high_[i]);
    }
  }
  /// put(d, value of d, value of d + 1) gets each pair.
  template <class Put>
  void finish(f32 eps, Put put) const {
    f32 squares = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float2 a = {low_f32(low_[i]), high_f32(low_[i])}, b = {low_f32(high_[i]), high_f32(high_[i])};
      if (lane() + i * kWarpLanes < kPairs) squares = fma(a.x, a.x, fma(a.y, a.y, squares)) + fma(b.x, b.x, b.y * b.y);
    }
    f32 scale = 1;
    if (kNorm && is_turned_) scale = fast_rsqrt(warp_all(squares, Add{}) * (1.0f / D) + eps);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = lane() + i * kWarpLanes;
      if (p >= kPairs) continue;
      float2 a = {low_f32(low_[i]), high_f32(low_[i])}, b = {low_f32(high_[i]), high_f32(high_[i])};
      if (kNorm && is_turned_) {
        a = {a.x * scale * low_f32(factors_[i]), a.y * scale * high_f32(factors_[i])};
        b = {b.x * scale * low_f32(more_[i]), b.y * scale * high_f32(more_[i])};
      }
      if (is_turned_) {
        const float2 c = cosine_[i], s = sine_[i];
        const float2 turned = {a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y};
        b = {b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y};
        a = turned;
      }
      put(2 * p, a.x, a.y);
      put(kHalf + 2 * p, b.x, b.y);
    }
  }

 private:
  u32 low_[kPerLane], high_[kPerLane], factors_[kPerLane], more_[kPerLane];
  float2 cosine_[kPerLane], sine_[kPerLane];
  bool is_turned_;
};

template <class Args>
inline f32 head_eps() {
  if constexpr (requires { Args::eps; })
    return Args::eps;
  else
    return 0;
}

/// Loads place e of group g in row t of `qkv`, whose position is given; `norm` is that of queries or of keys.
template <bool kNorm, class Args>
inline void load_head(HeadPairs<2 * static_cast<int>(Args::H), kNorm>& head, const Args& args, int t, int position,
                      int g, int e, const bf16* norm, bool is_turned) {
  constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G), E = static_cast<int>(Args::E);
  const int row = position * (D / 2);
  head.load(args.qkv, ((t * G + g) * E + e) * D, norm, args.cosine + row, args.sine + row, is_turned, args.epoch);
}
/// The same, and what becomes of it.
template <bool kNorm, class Args, class Put>
inline void each_qkv_pair(const Args& args, int t, int position, int g, int e, const bf16* norm, bool is_turned,
                          Put put) {
  HeadPairs<2 * static_cast<int>(Args::H), kNorm> head;
  load_head(head, args, t, position, g, e, norm, is_turned);
  head.finish(head_eps<Args>(), put);
}

}  // namespace megalith::kernels
