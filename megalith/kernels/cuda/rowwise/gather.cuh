// The small steps around a decoder's layers on a GPU: rows looked up, picked, and the winner of a search. They read and
// write words, so that no step waits for a counter.
#pragma once

#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/common/reduce.cuh"
#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"

namespace megalith::kernels {

/// y[t] = weight[ids[t]].
template <class Args>
inline void embedding_rows(const Args& args) {
  for (i64 t = args.t_begin; t < min(args.t_end, rows_of(args)); ++t) {
    const auto* const row =
        args.weight + inside_of_row(args, t, args.ids[t], static_cast<int>(Args::V), Args::Checks::ids) * i64(Args::H);
    for (i64 h = args.h_begin + 2 * thread(); h < args.h_end; h += 2 * kThreads)
      put_pair(args.y, t * Args::H + h, to_f32(row[h]), to_f32(row[h + 1]), args.epoch);
  }
}

/// y[r] = x[rows[r]]. Who has room for one row takes it to be there (rows_of()): of an iteration without one it is 0.
template <class Args>
inline void gather_token_rows(const Args& args) {
  for (i64 r = args.r_begin; r < min(args.r_end, Args::R_largest == 1 ? i64{1} : i64(args.R)); ++r)
    for (i64 h = 2 * thread(); h < Args::H; h += 2 * kThreads) {
      float2 pair = {0, 0};
      if (r < args.R) {
        const i64 row = inside_32(args.faults, args.rows[r], static_cast<int>(rows_of(args)), Args::Checks::rows);
        pair = get_pair_f32(args.x, row * Args::H + h, args.epoch);
      }
      put_pair(args.y, r * Args::H + h, pair.x, pair.y, args.epoch);
    }
}

/// The largest value of each chunk of L columns and the lowest column that has it, four columns a lane at a time. A
/// warp has several chunks under way.
template <class Args>
inline void argmax_chunks(const Args& args) {
  constexpr int V = static_cast<int>(Args::V), L = static_cast<int>(Args::L), kAtOnce = 4;
  const int c_begin = static_cast<int>(args.c_begin), num_chunks = static_cast<int>(args.c_end) - c_begin;
  const int r_begin = static_cast<int>(args.r_begin), rows = static_cast<int>(min(args.r_end, i64(args.R))) - r_begin;
#pragma unroll 1
  for (int first = warp() * kAtOnce; first < rows * num_chunks; first += kWarps * kAtOnce) {
    f32 best[kAtOnce];
    int at[kAtOnce];
    const auto place = [&](int i) { return min(first + i, rows * num_chunks - 1); };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      best[i] = -kInfinity;
      at[i] = 0x7fffffff;
    }
#pragma unroll 1
    for (int of_lane = lane() * 4; of_lane < L; of_lane += kWarpLanes * 4) {
      float4 fours[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int column = (c_begin + place(i) % num_chunks) * L + of_lane;
        fours[i] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
        if (column < V)
          fours[i] = *reinterpret_cast<const float4*>(args.x + i64(r_begin + place(i) / num_chunks) * V + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const f32 four[4] = {fours[i].x, fours[i].y, fours[i].z, fours[i].w};
        const int column = (c_begin + place(i) % num_chunks) * L + of_lane;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (column + j < V && (four[j] > best[i] || at[i] == 0x7fffffff)) best[i] = four[j], at[i] = column + j;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) {
        const f32 other = from_lane(best[i], apart);
        const int column = from_lane(at[i], apart);
        if (other > best[i] || (other == best[i] && column < at[i])) best[i] = other, at[i] = column;
      }
      if (lane() != 0 || first + i >= rows * num_chunks) continue;
      const int to = (r_begin + place(i) / num_chunks) * static_cast<int>(Args::C) + c_begin + place(i) % num_chunks;
      put(args.value, to, best[i], args.epoch);
      // A chunk past the last column has none; the loop kernel says the first one of the chunk then.
      put(args.index, to, at[i] == 0x7fffffff ? (c_begin + place(i) % num_chunks) * L : at[i], args.epoch);
    }
  }
}

/// best[r]: the column of the largest value. All that a thread looks at is under way at once.
template <class Args>
inline void argmax_reduce_rows(const Args& args) {
  constexpr int C = static_cast<int>(Args::C), kPerThread = (C + kThreads - 1) / kThreads;
  for (i64 r = args.r_begin; r < min(args.r_end, i64(args.R)); ++r) {
    const auto place = [&](int i) { return static_cast<int>(r) * C + min(thread() + i * kThreads, C - 1); };
    decltype(look(args.value, 0)) values[kPerThread];
    decltype(look(args.index, 0)) indices[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      values[i] = look(args.value, place(i));
      indices[i] = look(args.index, place(i));
    }
    wait_together(values, args.value, place, args.epoch);
    wait_together(indices, args.index, place, args.epoch);
    // The last place twice is no harm.
    Best<f32> best{0, -1};
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      best = better(best, {value_of(args.value, values[i]), value_of(args.index, indices[i])});
    best = block_all(best, Better{});
    if (thread() == 0) args.best[r] = static_cast<i32>(best.at);
  }
}

}  // namespace megalith::kernels
