// Norms on a GPU, for more rows of activations than travel as words. In a layer a norm is no step of its own: who
// writes a row of the residual stream also writes a copy with the norm's weight, and sums of squares, a few columns
// each; who multiplies the copy scales what it sums. Where few rows are left, a block normalises a row.
#pragma once

#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/common/reduce.cuh"
#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"

namespace megalith::kernels {

/// y = x / rms(x) * weight.
template <class Args>
inline void rmsnorm_rows(const Args& args) {
  using Weights = Pair<HalfOf<decltype(args.weight)>>;
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
      put_pair(args.y, i64(t) * H + h, pairs[i].x * scale * Weights::low(weights[i]),
               pairs[i].y * scale * Weights::high(weights[i]), args.epoch);
    }
  }
}

/// A pair of columns of y, of the copy that has the norm's weight, and of what its chunk's squares add up to; the last
/// two of a factor of it. By all
/// lanes of a warp: half as many lanes as a chunk has columns have them, in order. The sum's order is that of the
/// lanes, so the same however tasks are cut.
template <class Args>
inline void put_rmsnorm_parts(const Args& args, bool is_there, int row, int column, float2 y, u32 norm) {
  constexpr int C = static_cast<int>(Args::C), L = static_cast<int>(Args::L);
  static_assert(L >= 4 && L <= 2 * kWarpLanes && (L & (L - 1)) == 0);
  const float2 part = {y.x * Args::factor, y.y * Args::factor};
  f32 squares = fma(part.x, part.x, part.y * part.y);
#pragma unroll
  for (int apart = L / 4; apart > 0; apart /= 2) squares += from_lane(squares, apart);
  if (!is_there) return;
  const int at = row * (C * L) + column;
  put_two(args.y, at, y.x, y.y, args.epoch);
  using Norm = Pair<HalfOf<decltype(args.norm)>>;
  put_pair(args.copy, at, part.x * Norm::low(norm), part.y * Norm::high(norm), args.epoch);
  if (column % L == 0) put(args.squares, row * C + column / L, squares, args.epoch);
}

/// y = residual + the parts, its copy and its squares.
template <class Args>
inline void sum_slices_rmsnorm_parts_rows(const Args& args) {
  constexpr int S = static_cast<int>(Args::S), C = static_cast<int>(Args::C), L = static_cast<int>(Args::L),
                T = static_cast<int>(Args::T_largest), kPairs = L / 2, kRowsAtOnce = kThreads / kPairs,
                kMax = S <= 2   ? 8
                       : S <= 4 ? 4
                                : 2,
                kAtOnce = T <= kRowsAtOnce ? 1 : kMax;  // as there are registers for
  const int n = thread() % kPairs * 2, end = static_cast<int>(min(args.t_end, i64(args.T)));
#pragma unroll 1
  for (int c = static_cast<int>(args.c_begin); c < static_cast<int>(args.c_end); ++c) {
    const int column = c * L + n;
    const u32 norm = *reinterpret_cast<const u32*>(args.norm + column);
#pragma unroll 1
    for (int begin = static_cast<int>(args.t_begin); begin < end; begin += kAtOnce * kRowsAtOnce) {
      const int first = begin + thread() / kPairs;
      float2 terms[kAtOnce][S + 1];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = min(first + i * kRowsAtOnce, T - 1);
        terms[i][0] = *reinterpret_cast<const float2*>(args.residual + row * (C * L) + column);
#pragma unroll
        for (int s = 0; s < S; ++s)
          terms[i][s + 1] = *reinterpret_cast<const float2*>(args.part + (s * T + row) * (C * L) + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        float2 sum = terms[i][1];
#pragma unroll
        for (int s = 1; s < S; ++s) sum = {sum.x + terms[i][s + 1].x, sum.y + terms[i][s + 1].y};
        const int row = first + i * kRowsAtOnce;
        put_rmsnorm_parts(args, row < end, row, column, {terms[i][0].x + sum.x, terms[i][0].y + sum.y}, norm);
      }
    }
  }
}

/// y = weight[ids], its copy and its squares.
template <class Args>
inline void embedding_rmsnorm_parts_rows(const Args& args) {
  using Weights = Pair<HalfOf<decltype(args.weight)>>;
  constexpr int H = static_cast<int>(Args::C * Args::L), kPasses = (H / 2 + kThreads - 1) / kThreads;
  const int t_end = static_cast<int>(min(args.t_end, i64(args.T)));
  for (int t = static_cast<int>(args.t_begin); t < t_end; ++t) {
    const auto* const row =
        args.weight + inside_32(args.faults, args.ids[t], static_cast<int>(Args::V), Args::Checks::ids) * i64(H);
    u32 pairs[kPasses] = {}, norms[kPasses] = {};
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int h = 2 * (thread() + i * kThreads);
      if (h >= H) continue;
      pairs[i] = *reinterpret_cast<const u32*>(row + h);
      norms[i] = *reinterpret_cast<const u32*>(args.norm + h);
    }
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int h = 2 * (thread() + i * kThreads);
      put_rmsnorm_parts(args, h < H, t, h, {Weights::low(pairs[i]), Weights::high(pairs[i])}, norms[i]);
    }
  }
}

/// Brings the weight into the L2 before a task's turn.
template <class Args>
inline void rmsnorm_rows_ahead(const Args& args) {
  if (lane() < static_cast<int>(kCopyLanes) && Args::H % 8 == 0)
    prefetch(args.weight, static_cast<u32>(Args::H) * sizeof(*args.weight));
}

}  // namespace megalith::kernels
