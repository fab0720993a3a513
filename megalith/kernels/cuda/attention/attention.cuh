// Attention of a decoder on a GPU: of few rows by the whole block each, of many by a part of it or several, of a prompt's by the
// block for several of them.
#pragma once

#include "megalith/kernels/cuda/attention/block_per_token.cuh"
#include "megalith/kernels/cuda/attention/query_tile.cuh"
#include "megalith/kernels/cuda/attention/warpgroup_per_token.cuh"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

template <bool kNorm, class Args>
inline void attention_task(const Args& args) {
  constexpr bool kWhole = Chunks<Args>::kWhole;
  constexpr bool kAlone = !kWhole && attention::is_row_alone(Args::T_largest, 2 * Args::H);
  const auto task = args.task;
  if constexpr (requires { Args::F; }) {
    if (args.r_begin >= rows_of(args)) return;
  } else if constexpr (kWhole) {
    if (args.t_begin >= rows_of(args)) return;
  } else {
    if (rows_of(args) == 0) return;
  }
  look_up_rows(args);
  if constexpr (kAlone) {
    attend_rows_alone<kNorm, Args>(args, task);
    return;
  }
  if constexpr (kAllCached<Args> && attention::takes_query_tiles(Args::T_largest, 2 * Args::H)) {
    attend_query_tiles<kNorm, Args>(task);
  } else if constexpr (requires { Args::F; }) {
    attend_rows_apart<kNorm, Args>(task);
  } else if constexpr (kWhole) {
    attend_rows<kNorm, Args>(task);
  } else {
    attend_chunks<kNorm, Args>(task);
  }
}

/// Brings positions [first, end), of those chosen of each of a task's chunks, into the L2. Where rows stand may be about to change, and
/// what is fetched for nothing is no harm. With several rows, positions would come at the cost of what others wait for
/// (Qwen3-8B with 8 sequences 4.07 ms instead of 4.02).
template <class Args>
inline void positions_ahead(const Args& args, int first, int end) {
  if constexpr (!Chunks<Args>::kWhole && Args::T_largest <= stream::kMaxRowsOfWords) {
    constexpr int rows = static_cast<int>(Args::T_largest);  // how many there are is about to change, too
#pragma unroll 1
    for (int s = static_cast<int>(args.s_begin); s < args.s_end; ++s) {
      const auto [t, chunk] = share_of<Args>(s, rows);
      if (chunk.number >= chunk.count) continue;
      const int start = static_cast<int>(load_relaxed(reinterpret_cast<const u32*>(args.start + t)));
      const int request = static_cast<int>(load_relaxed(reinterpret_cast<const u32*>(args.request + t)));
      if (static_cast<u32>(start) > static_cast<u32>(cached_positions<Args>()) ||
          static_cast<u32>(request) >= static_cast<u32>(Args::R_largest))
        continue;
#pragma unroll 1
      for (int g = static_cast<int>(args.g_begin); g < args.g_end; ++g)
        prefetch_positions(args, request, g, chunk, first, end, num_cached<Args>(start, chunk));
    }
  }
}

/// Brings what a task reads into the L2, by a warp that is tasks ahead, perhaps in the iteration before: when the last layer's
/// attention has ended, and memory has less to do. All positions then would stand before what the next task waits for.
template <class Args>
inline void attention_ahead(const Args& args) {
  if constexpr (requires { args.q_norm; }) {
    constexpr u32 kBytes = 2 * static_cast<u32>(Args::H) * sizeof(bf16);
    if (lane() < static_cast<int>(kCopyLanes) && kBytes % 16 == 0) {
      prefetch(args.q_norm, kBytes);
      if constexpr (requires { args.k_norm; }) prefetch(args.k_norm, kBytes);
    }
  }
  positions_ahead(args, 0, kFirstAhead);
}
template <class Args>
inline void attention_ahead_late(const Args& args) {
  positions_ahead(args, kFirstAhead, kMaxAhead);
}

template <class Args>
inline void attention_partial_norm(const Args& args) {
  attention_task<true>(args);
}
template <class Args>
inline void attention_partial_plain(const Args& args) {
  attention_task<false>(args);
}
template <class Args>
inline void attention_whole_norm(const Args& args) {
  attention_task<true>(args);
}
template <class Args>
inline void attention_whole_plain(const Args& args) {
  attention_task<false>(args);
}

}  // namespace megalith::kernels
