// The projections of a decoder on a GPU, with weights from the stream: kernels/cuda/multiply.cuh with what comes after
// the sum. Rows of weights come in groups; a task's first row is the first of a group.
#pragma once

#include "megalith/kernels/cuda/multiply.cuh"

namespace megalith::kernels {

/// The sizes of a multiplication of `kRows` rows of activations at most with rows of `kColumns` weights.
template <i64 kRows, i64 kColumns>
struct LinearSizes {
  static_assert(kColumns % 8 == 0 && kRows <= stream::kMostRows && kWarps == stream::kConsumerWarps);
  static constexpr int kSlices = stream::slices(kRows), kGroup = stream::group_rows(kSlices);
  static constexpr int kChunks = static_cast<int>(stream::chunks_per_group(kColumns, kSlices));
  static constexpr int kPadded = kChunks * stream::chunk_columns(kSlices);
  /// Groups of rows of weights whose sums there is room for at a time.
  static int groups_at_a_time(int rows) {
    return stream::kSumsPerWarp / (kGroup * (kRows == 1 ? 1 : max(rows, 1)));
  }
};

/// Runs `epilogue(t, n, sums)` for each pair of rows of weights n, n + 1 below `n_end` and each of `rows` rows of
/// activations. `kStreams` weights of the same shape take turns, group by group: sums[i] is of weight i.
template <int kStreams, class Sizes, class Epilogue>
inline void for_each_pair(u32 chunk, int rows, int n_begin, int n_end, Epilogue epilogue) {
  constexpr int kGroup = Sizes::kGroup;
  const int num_groups = (n_end - n_begin + kGroup - 1) / kGroup, at_a_time = Sizes::groups_at_a_time(rows) / kStreams;
#pragma unroll 1
  for (int done = 0; done < num_groups; done += at_a_time) {
    if (done > 0) block_sync();  // the sums were read
    const int count = min(at_a_time, num_groups - done), pairs = count * (kGroup / 2);
    multiply_groups<Sizes::kSlices>(chunk + done * (kStreams * Sizes::kChunks), count * kStreams, Sizes::kChunks, rows,
                                    Sizes::kPadded);
#pragma unroll 1
    for (int i = thread(); i < pairs * rows; i += kThreads) {
      const int t = rows == 1 ? 0 : i / pairs, n = (i - t * pairs) * 2;
      if (n_begin + done * kGroup + n >= n_end) continue;
      const f32* const from = multiply_sums() + t * (count * kStreams * kGroup) + n / kGroup * (kStreams * kGroup) + n % kGroup;
      float2 sums[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) sums[s] = multiply_sum<float2>(from + s * kGroup);
      epilogue(t, n_begin + done * kGroup + n, sums);
    }
  }
}

/// y = rmsnorm(x) weight^T.
template <class Args>
inline void stream_rmsnorm_linear(const Args& args) {
  using Sizes = LinearSizes<Args::T_largest, Args::K>;
  const int rows = static_cast<int>(args.T);
  multiply_stage(args.x, args.norm, Args::eps, rows, static_cast<int>(Args::K), Sizes::kPadded, args.epoch);
  for_each_pair<1, Sizes>(args.chunk, rows, static_cast<int>(args.n_begin), static_cast<int>(args.n_end),
                          [&](int t, int n, const float2(&sums)[1]) {
                            const f32 scale = multiply_scale[t];
                            put_pair(args.y, t * static_cast<int>(Args::N) + n, sums[0].x * scale, sums[0].y * scale,
                                     args.epoch);
                          });
}

/// y = residual + x weight^T, and a copy of y for whoever multiplies it next.
template <class Args>
inline void stream_linear_residual_copy(const Args& args) {
  using Sizes = LinearSizes<Args::T_largest, Args::K>;
  const int rows = static_cast<int>(args.T), n_begin = static_cast<int>(args.n_begin);
  const int n_end = static_cast<int>(args.n_end);
  multiply_stage(args.x, static_cast<const bf16*>(nullptr), 0.0f, rows, static_cast<int>(Args::K), Sizes::kPadded,
                 args.epoch);
  // The residual, written long ago, comes while weights are multiplied: a thread's first result is known beforehand.
  const int mine = n_begin + 2 * thread();
  const bool early = Args::T_largest == 1 && rows == 1 && mine < n_end;
  decltype(look_two(args.residual, 0)) seen{};
  if (early) seen = look_two(args.residual, mine);
  for_each_pair<1, Sizes>(args.chunk, rows, n_begin, n_end, [&](int t, int n, const float2(&sums)[1]) {
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
  using Sizes = LinearSizes<Args::T_largest, Args::K>;
  const int rows = static_cast<int>(args.T);
  multiply_stage(args.x, args.norm, Args::eps, rows, static_cast<int>(Args::K), Sizes::kPadded, args.epoch);
  for_each_pair<2, Sizes>(args.chunk, rows, static_cast<int>(args.n_begin), static_cast<int>(args.n_end),
                          [&](int t, int n, const float2(&sums)[2]) {
                            const f32 scale = multiply_scale[t];
                            put_pair(args.y, t * static_cast<int>(Args::N) + n,
                                     silu(sums[0].x * scale) * (sums[1].x * scale),
                                     silu(sums[0].y * scale) * (sums[1].y * scale), args.epoch);
                          });
}

/// logits = rmsnorm(x) weight^T, and the largest of each chunk of L columns with the lowest column that has it. One
/// warp looks after one row of activations.
template <class Args>
inline void stream_rmsnorm_linear_argmax(const Args& args) {
  static_assert(Args::L == 4 * kWarpLanes);
  using Sizes = LinearSizes<Args::R_largest, Args::K>;
  constexpr int L = static_cast<int>(Args::L), V = static_cast<int>(Args::V), C = static_cast<int>(Args::C);
  constexpr int kGroup = Sizes::kGroup;
  const int rows = static_cast<int>(args.R), c_end = static_cast<int>(args.c_end), t = warp();
  multiply_stage(args.x, args.norm, Args::eps, rows, static_cast<int>(Args::K), Sizes::kPadded, args.epoch);
  const int at_a_time = Sizes::groups_at_a_time(rows);
  u32 chunk = args.chunk;
  for (int c = static_cast<int>(args.c_begin); c < c_end; ++c) {
    const int columns = min(L, V - c * L), num_groups = (columns + kGroup - 1) / kGroup;
    f32 best = -kInfinity;
    int column_of_best = 0x7fffffff;
    for (int done = 0; done < num_groups; done += at_a_time) {
      const int count = min(at_a_time, num_groups - done);
      multiply_groups<Sizes::kSlices>(chunk, count, Sizes::kChunks, rows, Sizes::kPadded);
      chunk += count * Sizes::kChunks;
      const int n = lane() * 4, column = c * L + done * kGroup + n;
      if (t < rows && n < count * kGroup) {
        const float4 sums = multiply_sum<float4>(multiply_sums() + t * count * kGroup + n);
        const f32 scale = multiply_scale[t], values[4] = {sums.x * scale, sums.y * scale, sums.z * scale, sums.w * scale};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < V) {
            args.logits[i64(t) * V + column + i] = values[i];
            if (values[i] > best || column_of_best == 0x7fffffff) best = values[i], column_of_best = column + i;
          }
      }
      block_sync();
    }
    if (t < rows) {
#pragma unroll
      for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) {
        const f32 other = from_lane(best, apart);
        const int column = from_lane(column_of_best, apart);
        if (other > best || (other == best && column < column_of_best)) best = other, column_of_best = column;
      }
      if (lane() == 0) {
        put(args.value, t * C + c, best, args.epoch);
        put(args.index, t * C + c, column_of_best, args.epoch);
      }
    }
  }
}

}  // namespace megalith::kernels
