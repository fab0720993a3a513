// Rows normalised by a block on a GPU, for many rows of activations: what is multiplied next is read by all workers, so
// it is worked out once.
#pragma once

#include "megalith/kernels/cuda/blocks.cuh"
#include "megalith/kernels/cuda/reduce.cuh"

namespace megalith::kernels {

/// y = x / rms(x) * weight.
template <class Args>
inline void norm_rows(const Args& args) {
  constexpr int H = static_cast<int>(Args::H), kPairs = (H / 2 + kThreads - 1) / kThreads;
  const int t_end = static_cast<int>(min(args.t_end, i64(args.T)));
  for (int t = static_cast<int>(args.t_begin); t < t_end; ++t) {
    float2 pairs[kPairs];
    u32 weights[kPairs];
    f32 squares = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int h = 2 * (thread() + i * kThreads);
      pairs[i] = {0, 0};
      weights[i] = 0;
      if (h < H) {
        pairs[i] = {to_f32(args.x[t * H + h]), to_f32(args.x[t * H + h + 1])};
        weights[i] = *reinterpret_cast<const u32*>(args.weight + h);
      }
      squares = fma(pairs[i].x, pairs[i].x, fma(pairs[i].y, pairs[i].y, squares));
    }
    const f32 scale = fast_rsqrt(fast_divide(block_all(squares, Add{}), static_cast<f32>(H)) + Args::eps);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int h = 2 * (thread() + i * kThreads);
      if (h >= H) continue;
      put_pair(args.y, i64(t) * H + h, pairs[i].x * scale * low_f32(weights[i]),
               pairs[i].y * scale * high_f32(weights[i]), args.epoch);
    }
  }
}

/// Brings the weight into the L2 before a task's turn.
template <class Args>
inline void norm_rows_ahead(const Args& args) {
  if (lane() == 0 && Args::H % 8 == 0) prefetch(args.weight, static_cast<u32>(Args::H) * sizeof(bf16));
}

}  // namespace megalith::kernels
