// Heads of a decoder's attention on a GPU, from the fused projection `qkv`: for each group of query heads the M heads,
// then their key, then their value. q/k norm and rotation are worked out by whoever needs a head, because that costs
// less than another exchange between workers.
#pragma once

#include "megalith/kernels/cuda/common/reduce.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"

namespace megalith::kernels {

/// Two values side by side of a table of cosines or sines, as they lie there and as numbers.
inline float2 two_of_table(const f32* at) { return *reinterpret_cast<const float2*>(at); }
inline u32 two_of_table(const bf16* at) { return *reinterpret_cast<const u32*>(at); }
inline float2 two_f32(float2 two) { return two; }
inline float2 two_f32(u32 two) { return {low_f32(two), high_f32(two)}; }

/// One head of one row by one warp: each lane has values 2 p, 2 p + 1 and, half a head further, their partners in the
/// rotation, for p = lane, lane + 32, ... What is loaded can be under way for several heads. A row of `Table`, a pointer
/// to f32 or bf16, has `kWidth` columns: half a head, for values and partners alike, or a whole one.
template <int D, bool kNorm, class Table, int kWidth>
class HeadPairs {
  static constexpr int kHalf = D / 2, kPairs = D / 4, kPerLane = (kPairs + kWarpLanes - 1) / kWarpLanes;
  static constexpr int kHalves = kWidth / kHalf, kPartners = kHalves - 1;  // of a table; the one that is for partners
  static_assert(kWidth == kHalf || kWidth == D);
  using Two = decltype(two_of_table(Table()));

 public:
  /// `is_turned`: a query or a key, which are normalised if there is a norm, and rotated; a value is neither.
  ///
  /// That is said, and not told by pointers that are null: of those ptxas 13.0 made a load from address 0 (sm_90a,
  /// docs/performance/h200-history.md).
  template <class X>
  void load(X x, int first, const bf16* norm, Table cosine, Table sine, bool is_turned, Epoch epoch) {
    is_turned_ = is_turned;
    // All that is loaded is under way before anything is waited for.
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = min(lane() + i * kWarpLanes, kPairs - 1);
      factors_[i] = more_[i] = 0;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) cosine_[half][i] = sine_[half][i] = Two{};
      if (kNorm && is_turned_) {
        factors_[i] = *reinterpret_cast<const u32*>(norm + 2 * p);
        more_[i] = *reinterpret_cast<const u32*>(norm + kHalf + 2 * p);
      }
      if (is_turned_) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          cosine_[half][i] = two_of_table(cosine + half * kHalf + 2 * p);
          sine_[half][i] = two_of_table(sine + half * kHalf + 2 * p);
        }
      }
    }
    load_values(x, first, epoch);
  }
  /// The same of another head of that row, which is turned by as much.
  template <class X>
  void load_beside(const HeadPairs& other, X x, int first, Epoch epoch) {
    *this = other;
    load_values(x, first, epoch);
  }
  /// Of the lane's values.
  f32 squares() const {
    f32 squares = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float2 a = {low_f32(low_[i]), high_f32(low_[i])}, b = {low_f32(high_[i]), high_f32(high_[i])};
      if (lane() + i * kWarpLanes < kPairs) squares = fma(a.x, a.x, fma(a.y, a.y, squares)) + fma(b.x, b.x, b.y * b.y);
    }
    return squares;
  }
  /// put(d, value of d, value of d + 1) gets each pair.
  template <class Put>
  void finish(f32 eps, Put put) const {
    finish(kNorm && is_turned_ ? warp_all(squares(), Add{}) : 0.0f, eps, put);
  }
  /// The same; `total`: squares() of all lanes.
  template <class Put>
  void finish(f32 total, f32 eps, Put put) const {
    f32 scale = 1;
    if (kNorm && is_turned_) scale = fast_rsqrt(total * (1.0f / D) + eps);
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
        const float2 c = two_f32(cosine_[0][i]), s = two_f32(sine_[0][i]);
        const float2 of_b = two_f32(cosine_[kPartners][i]), other = two_f32(sine_[kPartners][i]);
        const float2 turned = {a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y};
        b = {b.x * of_b.x + a.x * other.x, b.y * of_b.y + a.y * other.y};
        a = turned;
      }
      put(2 * p, a.x, a.y);
      put(kHalf + 2 * p, b.x, b.y);
    }
  }

 private:
  template <class X>
  void load_values(X x, int first, Epoch epoch) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = min(lane() + i * kWarpLanes, kPairs - 1);
      get_two_pairs(x, first + 2 * p, first + kHalf + 2 * p, epoch, low_[i], high_[i]);
    }
  }

  u32 low_[kPerLane], high_[kPerLane], factors_[kPerLane], more_[kPerLane];
  Two cosine_[kHalves][kPerLane], sine_[kHalves][kPerLane];
  bool is_turned_;
};

template <class Args>
inline f32 head_eps() {
  if constexpr (requires { Args::eps; })
    return Args::eps;
  else
    return 0;
}

template <bool kNorm, class Args>
using HeadOf = HeadPairs<2 * static_cast<int>(Args::H), kNorm, decltype(Args::cosine), static_cast<int>(Args::W)>;

/// Loads place e of group g in row t of `qkv`, whose position is given; `norm` is that of queries or of keys.
template <bool kNorm, class Args>
inline void load_head(HeadOf<kNorm, Args>& head, const Args& args, int t, int position, int g, int e, const bf16* norm,
                      bool is_turned) {
  constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G), E = static_cast<int>(Args::E);
  const int row = position * static_cast<int>(Args::W);
  head.load(args.qkv, ((t * G + g) * E + e) * D, norm, args.cosine + row, args.sine + row, is_turned, args.epoch);
}
/// The same of place e of a group and row another place of which is being loaded.
template <class Head, class Args>
inline void load_head_beside(Head& head, const Head& other, const Args& args, int t, int g, int e) {
  constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G), E = static_cast<int>(Args::E);
  head.load_beside(other, args.qkv, ((t * G + g) * E + e) * D, args.epoch);
}
/// The same, and what becomes of it.
template <bool kNorm, class Args, class Put>
inline void each_qkv_pair(const Args& args, int t, int position, int g, int e, const bf16* norm, bool is_turned,
                          Put put) {
  HeadOf<kNorm, Args> head;
  load_head<kNorm>(head, args, t, position, g, e, norm, is_turned);
  head.finish(head_eps<Args>(), put);
}

}  // namespace megalith::kernels
