// The projections of a decoder on a GPU, with weights from the stream: kernels/cuda/multiply.cuh with what comes after
// the sum. Rows of weights come in groups; a task's first row is the first of a group.
#pragma once

#include "megalith/kernels/cuda/multiply.cuh"

namespace megalith::kernels {

/// Runs `epilogue(t, n, sums)` for each pair of rows of weights n, n + 1 below `n_end` and each row of activations t.
/// `kStreams` weights of the same shape take turns, group by group: sums[i] is of weight i.
template <int kStreams, class M, class Epilogue>
inline void for_each_pair(M& multiply, int n_begin, int n_end, Epilogue epilogue) {
  constexpr int kGroup = M::kRowsPerGroup;
  const int num_groups = (n_end - n_begin + kGroup - 1) / kGroup;
  const int at_a_time = multiply.groups_at_a_time() / kStreams;
  for (int done = 0; done < num_groups; done += at_a_time) {
    if (done > 0) block_sync();  // the sums were read
    const int count = min(at_a_time, num_groups - done), pairs = count * (kGroup / 2);
    multiply.groups(count * kStreams);
    for (int i = thread(); i < pairs * multiply.rows(); i += kThreads) {
      const int t = multiply.rows() == 1 ? 0 : i / pairs, n = (i - t * pairs) * 2;
      if (n_begin + done * kGroup + n >= n_end) continue;
      float2 sums[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s)
        sums[s] = multiply.template sum<float2>(count * kStreams, t, (n / kGroup * kStreams + s) * kGroup + n % kGroup);
      epilogue(t, n_begin + done * kGroup + n, sums);
    }
  }
}

/// y = rmsnorm(x) weight^T.
template <class Args>
inline void stream_rmsnorm_linear(const Args& args) {
  using M = Multiply<Args::T_largest, Args::K>;
  const int n_begin = static_cast<int>(args.n_begin), n_end = static_cast<int>(args.n_end);
  if (args.T == 0) return M::template skip<1>(args.chunk, n_begin, n_end);
  M multiply(args.chunk, static_cast<int>(args.T));
  multiply.template stage<true>(args.x, args.norm, Args::eps, args.epoch);
  for_each_pair<1>(multiply, n_begin, n_end, [&](int t, int n, const float2(&sums)[1]) {
    const f32 scale = multiply.scale(t);
    put_pair(args.y, t * static_cast<int>(Args::N) + n, sums[0].x * scale, sums[0].y * scale, args.epoch);
  });
}

/// y = residual + x weight^T, and a copy of y for whoever multiplies it next.
template <class Args>
inline void stream_linear_residual_copy(const Args& args) {
  using M = Multiply<Args::T_largest, Args::K>;
  const int n_begin = static_cast<int>(args.n_begin), n_end = static_cast<int>(args.n_end);
  if (args.T == 0) return M::template skip<1>(args.chunk, n_begin, n_end);
  // The residual is on its way while the activations come in: a thread's first result is known beforehand.
  constexpr bool kEarly = Args::T_largest == 1;
  const int mine = n_begin + 2 * thread();
  const bool early = kEarly && mine < n_end;
  decltype(look_two(args.residual, 0)) seen{};
  if (early) seen = look_two(args.residual, mine);
  M multiply(args.chunk, static_cast<int>(args.T));
  multiply.template stage<false>(args.x, nullptr, 0, args.epoch);
  for_each_pair<1>(multiply, n_begin, n_end, [&](int t, int n, const float2(&sums)[1]) {
    const int at = t * static_cast<int>(Args::N) + n;
    const bool known = early && n == mine;
    const float2 residual = get_two(known ? seen : look_two(args.residual, at), args.residual, at, args.epoch);
    const float2 y = {residual.x + sums[0].x, residual.y + sums[0].y};
    put_pair(args.copy, at, y.x, y.y, args.epoch);
    put_two(args.y, at, y.x, y.y, args.epoch);
  });
}

inline f32 silu(f32 x) { return fast_divide(x, 1.0f + fast_exp(-x)); }

/// y = silu(rmsnorm(x) gate^T) * (rmsnorm(x) up^T).
template <class Args>
inline void stream_rmsnorm_gate_up(const Args& args) {
  using M = Multiply<Args::T_largest, Args::K>;
  const int n_begin = static_cast<int>(args.n_begin), n_end = static_cast<int>(args.n_end);
  if (args.T == 0) return M::template skip<2>(args.chunk, n_begin, n_end);
  M multiply(args.chunk, static_cast<int>(args.T));
  multiply.template stage<true>(args.x, args.norm, Args::eps, args.epoch);
  for_each_pair<2>(multiply, n_begin, n_end, [&](int t, int n, const float2(&sums)[2]) {
    const f32 scale = multiply.scale(t);
    put_pair(args.y, t * static_cast<int>(Args::N) + n, silu(sums[0].x * scale) * (sums[1].x * scale),
             silu(sums[0].y * scale) * (sums[1].y * scale), args.epoch);
  });
}

/// logits = rmsnorm(x) weight^T, and the largest of each chunk of L columns with the lowest column that has it. One
/// warp looks after one row of activations.
template <class Args>
inline void stream_rmsnorm_linear_argmax(const Args& args) {
  static_assert(Args::L == 4 * kWarpLanes);
  using M = Multiply<Args::R_largest, Args::K>;
  constexpr int L = static_cast<int>(Args::L), V = static_cast<int>(Args::V), C = static_cast<int>(Args::C);
  const int c_begin = static_cast<int>(args.c_begin), c_end = static_cast<int>(args.c_end);
  if (args.R == 0) return M::template skip<1>(args.chunk, c_begin * L, min(c_end * L, V));
  M multiply(args.chunk, static_cast<int>(args.R));
  multiply.template stage<true>(args.x, args.norm, Args::eps, args.epoch);
  const int at_a_time = multiply.groups_at_a_time();
  for (int c = c_begin; c < c_end; ++c) {
    const int columns = min(L, V - c * L), num_groups = (columns + M::kRowsPerGroup - 1) / M::kRowsPerGroup;
    Best<f32> best{0, -1};
    for (int done = 0; done < num_groups; done += at_a_time) {
      const int count = min(at_a_time, num_groups - done);
      multiply.groups(count);
      const int n = lane() * 4, column = done * M::kRowsPerGroup + n, t = warp();
      if (t < multiply.rows() && n < count * M::kRowsPerGroup) {
        const float4 sums = multiply.template sum<float4>(count, t, n);
        const f32 scale = multiply.scale(t);
        const f32 values[4] = {sums.x * scale, sums.y * scale, sums.z * scale, sums.w * scale};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < columns) {
            args.logits[i64(t) * V + c * L + column + i] = values[i];
            best = better(best, {values[i], c * L + column + i});
          }
      }
      block_sync();
    }
    if (warp() < multiply.rows()) {
      best = warp_all(best, Better{});
      if (lane() == 0) {
        put(args.value, warp() * C + c, best.value, args.epoch);
        put(args.index, warp() * C + c, static_cast<i32>(best.at), args.epoch);
      }
    }
  }
}

}  // namespace megalith::kernels
