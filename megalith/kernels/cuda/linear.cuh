// The projections of a decoder on a GPU, with weights from the stream: kernels/cuda/multiply.cuh with what comes after
// the sum. Rows of weights come in groups; a task's first row is the first of a group.
#pragma once

#include "megalith/kernels/cuda/multiply.cuh"

namespace megalith::kernels {

/// Runs `epilogue(t, n, sums)` for each pair of rows of weights n, n + 1 below `n_end` and each row of activations t.
/// `kStreams` weights of the same shape take turns, group by group: sums[i] is of weight i.
template <int kStreams, class M, class Epilogue>
inline void for_each_pair(M& multiply, int rows, int n_begin, int n_end, Epilogue epilogue) {
  constexpr int kGroup = M::kRowsPerGroup;
  const int num_groups = (n_end - n_begin + kGroup - 1) / kGroup;
  const int at_a_time = multiply.groups_at_a_time() / kStreams;
  for (int done = 0; done < num_groups; done += at_a_time) {
    if (done > 0) block_sync();  // the sums were read
    const int count = min(at_a_time, num_groups - done), pairs = count * (kGroup / 2);
    multiply.groups(count * kStreams);
    for (int i = thread(); i < pairs * rows; i += kThreads) {
      const int t = rows == 1 ? 0 : i / pairs, n = (i - t * pairs) * 2;
      if (n_begin + done * kGroup + n >= n_end) continue;
      float2 sums[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s)
        sums[s] = multiply.sum2(count * kStreams, t, (n / kGroup * kStreams + s) * kGroup + n % kGroup);
      epilogue(t, n_begin + done * kGroup + n, sums);
    }
  }
}

/// y = rmsnorm(x) weight^T.
template <class Args>
inline void stream_rmsnorm_linear(const Args& args) {
  const int rows = static_cast<int>(args.T);
  Multiply<Args::T_largest, Args::K> multiply(args.area, args.chunk, rows);
  multiply.template stage<true>(args.x, args.norm, Args::eps, args.epoch);
  for_each_pair<1>(multiply, rows, static_cast<int>(args.n_begin), static_cast<int>(args.n_end),
                   [&](int t, int n, const float2(&sums)[1]) {
                     const f32 scale = multiply.scale(t);
                     put_pair(args.y, i64(t) * Args::N + n, sums[0].x * scale, sums[0].y * scale, args.epoch);
                   });
}

/// y = residual + x weight^T, and a copy of y for whoever multiplies it next.
template <class Args>
inline void stream_linear_residual_copy(const Args& args) {
  const int rows = static_cast<int>(args.T), n_begin = static_cast<int>(args.n_begin);
  // The residual is on its way while the activations come in: a thread's first result is known beforehand.
  const int pairs = static_cast<int>(args.n_end - args.n_begin) / 2;
  const bool early = rows == 1 && thread() < pairs;
  float2 first = {0, 0};
  if (early) first = *reinterpret_cast<const float2*>(args.residual + n_begin + 2 * thread());
  Multiply<Args::T_largest, Args::K> multiply(args.area, args.chunk, rows);
  multiply.template stage<false>(args.x, nullptr, 0, args.epoch);
  for_each_pair<1>(multiply, rows, n_begin, static_cast<int>(args.n_end), [&](int t, int n, const float2(&sums)[1]) {
    const i64 at = i64(t) * Args::N + n;
    const bool known = early && n == n_begin + 2 * thread();
    const float2 residual = known ? first : *reinterpret_cast<const float2*>(args.residual + at);
    const float2 y = {residual.x + sums[0].x, residual.y + sums[0].y};
    put_pair(args.copy, at, y.x, y.y, args.epoch);
    *reinterpret_cast<float2*>(args.y + at) = y;
  });
}

inline f32 silu(f32 x) { return x / (1.0f + __expf(-x)); }

/// y = silu(rmsnorm(x) gate^T) * (rmsnorm(x) up^T).
template <class Args>
inline void stream_rmsnorm_gate_up(const Args& args) {
  const int rows = static_cast<int>(args.T);
  Multiply<Args::T_largest, Args::K> multiply(args.area, args.chunk, rows);
  multiply.template stage<true>(args.x, args.norm, Args::eps, args.epoch);
  for_each_pair<2>(multiply, rows, static_cast<int>(args.n_begin), static_cast<int>(args.n_end),
                   [&](int t, int n, const float2(&sums)[2]) {
                     const f32 scale = multiply.scale(t);
                     put_pair(args.y, i64(t) * Args::N + n, silu(sums[0].x * scale) * (sums[1].x * scale),
                              silu(sums[0].y * scale) * (sums[1].y * scale), args.epoch);
                   });
}

/// logits = rmsnorm(x) weight^T, and the largest of each chunk of L columns with the lowest column that has it. One
/// warp looks after one row of activations.
template <class Args>
inline void stream_rmsnorm_linear_argmax(const Args& args) {
  static_assert(Args::L == 4 * kWarpLanes);
  const int rows = static_cast<int>(args.R);
  using M = Multiply<Args::R_largest, Args::K>;
  M multiply(args.area, args.chunk, rows);
  multiply.template stage<true>(args.x, args.norm, Args::eps, args.epoch);
  const int at_a_time = multiply.groups_at_a_time();
  static_assert(stream::kSumsPerWarp / (M::kRowsPerGroup * stream::kMostRows) > 0);
  for (i64 c = args.c_begin; c < args.c_end; ++c) {
    const int columns = static_cast<int>(min(i64(Args::L), Args::V - c * Args::L));
    const int num_groups = (columns + M::kRowsPerGroup - 1) / M::kRowsPerGroup;
    Best<f32> best{0, -1};
    for (int done = 0; done < num_groups; done += at_a_time) {
      const int count = min(at_a_time, num_groups - done);
      multiply.groups(count);
      const int n = lane() * 4, column = done * M::kRowsPerGroup + n, t = warp();
      if (t < rows && n < count * M::kRowsPerGroup) {
        const float4 sums = multiply.sum4(count, t, n);
        const f32 scale = multiply.scale(t);
        const f32 values[4] = {sums.x * scale, sums.y * scale, sums.z * scale, sums.w * scale};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < columns) {
            args.logits[t * Args::V + c * Args::L + column + i] = values[i];
            best = better(best, {values[i], c * Args::L + column + i});
          }
      }
      block_sync();
    }
    if (warp() < rows) {
      best = warp_all(best, Better{});
      if (lane() == 0) {
        put(args.value, warp() * Args::C + c, best.value, args.epoch);
        put(args.index, warp() * Args::C + c, static_cast<i32>(best.at), args.epoch);
      }
    }
  }
}

}  // namespace megalith::kernels
