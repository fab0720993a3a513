// What both ways to do attention on a GPU have in common (block_per_token.cuh, warpgroup_per_token.cuh): where a
// chunk's keys and values lie, and small operations.
#pragma once

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/cuda/attention/dealt_rows.cuh"
#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/qkv_heads.cuh"
#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"
#include "megalith/kernels/cuda/mainloop/gemv_mainloop.cuh"
#include "megalith/kernels/cuda/scheduler/position_table.cuh"

namespace megalith::kernels {

/// Two values of f32 as two of bf16, and what rounding left of them.
struct Halves {
  u32 rounded, rest;
};
inline Halves halves(f32 a, f32 b) {
  const u32 rounded = pack_bf16(a, b);
  return {rounded, pack_bf16(a - low_f32(rounded), b - high_f32(rounded))};
}

/// How positions are dealt to a row's chunks: in blocks of L, or all to one.
template <class Args>
struct Chunks {
  static constexpr bool kWhole = !requires { Args::V; };
  static constexpr int length() {
    if constexpr (kWhole)
      return 1 << 24;
    else
      return static_cast<int>(Args::L);
  }
};
/// Positions of a chunk in the cache, of a request that has `start` there.
template <class Args>
inline int num_cached(int start, Chunk chunk) {
  if constexpr (Chunks<Args>::kWhole) {
    return start;
  } else {
    if (chunk.number >= chunk.count) return 0;
    constexpr int L = Chunks<Args>::length();
    const int rounds = rounds_of<Args>(start / L, chunk.count);
    return rounds * L + min(max(start - (rounds * chunk.count + chunk.number) * L, 0), L);
  }
}
/// The position of the text that is number n of the chunk's cached ones.
template <class Args>
inline int cached_position(Chunk chunk, int n) {
  constexpr int L = Chunks<Args>::length();
  return Chunks<Args>::kWhole ? n : (n / L * chunk.count + chunk.number) * L + n % L;
}
/// Whether a position is one of the chunk's.
template <class Args>
inline bool is_in_chunk(Chunk chunk, int position) {
  if constexpr (Chunks<Args>::kWhole) {
    return true;
  } else {
    const int block = position / Chunks<Args>::length();
    return block - rounds_of<Args>(block, chunk.count) * chunk.count == chunk.number;
  }
}
/// Whether all positions up to a row's own are in the cache; otherwise those of this iteration's rows are in `qkv`.
template <class Args>
inline constexpr bool kAllCached = !requires(const Args& args) {
  args.start;
};
/// Which page it is on, as the table has it.
template <class Args>
inline int noted_page(const Args& args, int request, int position) {
  return args.page_table[request * static_cast<int>(Args::Q) + position / static_cast<int>(Args::B)];
}
/// One that there is.
template <class Args>
inline int page_of(const Args& args, int request, int position) {
  return inside_32(args.faults, noted_page(args, request, position), static_cast<int>(Args::P),
                   Args::Checks::page_table);
}
/// Where a row of a head is, on a page that there is.
template <class Args>
using CachedRowOf = CachedRow<static_cast<int>(Args::B), static_cast<int>(Args::G), 2 * static_cast<int>(Args::H),
                              kIsPaired<decltype(Args::k_cache)>>;

/// Positions of a chunk that come into the L2 before its task has its turn: each warp's first tile as soon as the task has its
/// frame, and of those behind it up to kMoreAhead a task later. All workers' tasks together still find so many there; of a head
/// of 128 values they are 192 KB a task. docs/performance/gpu-tuning.md, "Behind long sequences", has what else was measured.
inline constexpr int kFirstAhead = attention::kTilePositions * kWarps, kMoreAhead = 256,
                     kMaxAhead = kFirstAhead + kMoreAhead;
/// Brings some of a chunk's `count` cached positions into the L2, by a warp: numbers [first, end) of up to kMaxAhead that are
/// chosen. If there are more than that it is every second tile behind the first ones, so that memory is busy with the others
/// meanwhile, and all are taken before they are driven out; and one further each time that so many are chosen as there are warps,
/// so that each warp has its share. Tables may be about to change: a page that there is not is passed over.
template <class Args>
inline void prefetch_positions(const Args& args, int request, int g, Chunk chunk, int first, int end, int count) {
  constexpr int D = 2 * static_cast<int>(Args::H), kTile = attention::kTilePositions;
  const int apart = count > kMaxAhead ? 2 : 1;
#pragma unroll 1
  for (int at = first + lane(); at < end; at += kWarpLanes) {
    const int behind = max(at - kFirstAhead, 0) / kTile;
    const int n = at + (behind * (apart - 1) + behind / kWarps % apart) * kTile;
    if (n >= count) return;
    const int position = cached_position<Args>(chunk, n), page = noted_page(args, request, position);
    if (static_cast<u32>(page) >= static_cast<u32>(Args::P)) continue;
    constexpr int B = static_cast<int>(Args::B), G = static_cast<int>(Args::G);
    const auto* const key = cached_head<B, G, D>(args.k_cache, page, position % B, g);
    const auto* const value = cached_head<B, G, D>(args.v_cache, page, position % B, g);
#pragma unroll
    for (int d = 0; d < D; d += 64) {
      prefetch_line(key + d);
      prefetch_line(value + d);
    }
  }
}

}  // namespace megalith::kernels
