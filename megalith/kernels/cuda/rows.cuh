// The small steps around a decoder's layers on a GPU: rows looked up, picked, and the winner of a search. They read and
// write words, so that no step waits for a counter.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

/// y[t] = weight[ids[t]].
template <class Args>
inline void embedding_rows(const Args& args) {
  for (i64 t = args.t_begin; t < min(args.t_end, rows_of(args)); ++t) {
    const bf16* const row = args.weight + args.ids[t] * Args::H;
    for (i64 h = args.h_begin + 2 * thread(); h < args.h_end; h += 2 * kThreads)
      put_pair(args.y, t * Args::H + h, to_f32(row[h]), to_f32(row[h + 1]), args.epoch);
  }
}

/// y[r] = x[rows[r]].
template <class Args>
inline void gather_words(const Args& args) {
  for (i64 r = args.r_begin; r < min(args.r_end, i64(args.R)); ++r)
    for (i64 h = 2 * thread(); h < Args::H; h += 2 * kThreads) {
      const u32 pair = get_pair(args.x, args.rows[r] * Args::H + h, args.epoch);
      put_pair(args.y, r * Args::H + h, low_f32(pair), high_f32(pair), args.epoch);
    }
}

/// best[r]: the column of the largest value. All that a thread looks at is under way at once.
template <class Args>
inline void argmax_words(const Args& args) {
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
