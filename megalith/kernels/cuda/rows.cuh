// The small steps around a decoder's layers on a GPU: rows looked up, picked, and the winner of a search. They read and
// write words, so that no step waits for a counter.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

/// y[t] = weight[ids[t]].
template <class Args>
inline void embedding_rows(const Args& args) {
  for (i64 t = args.t_begin; t < min(args.t_end, i64(args.T)); ++t) {
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

/// best[r]: the column of the largest value.
template <class Args>
inline void argmax_words(const Args& args) {
  for (i64 r = args.r_begin; r < min(args.r_end, i64(args.R)); ++r) {
    Best<f32> best{0, -1};
    for (i64 c = thread(); c < Args::C; c += kThreads)
      best = better(best, {get(args.value, r * Args::C + c, args.epoch), get(args.index, r * Args::C + c, args.epoch)});
    best = block_all(best, Better{});
    if (thread() == 0) args.best[r] = static_cast<i32>(best.at);
  }
}

}  // namespace megalith::kernels
