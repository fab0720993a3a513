// The cache of keys and values on a GPU, written behind everybody who reads it.
#pragma once

#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/qkv_heads.cuh"
#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/scheduler/position_table.cuh"

namespace megalith::kernels {

/// Where a head of this iteration's keys or values goes.
struct CachePlace {
  int page, position;
  bool is_somewhere;
};
/// What lies nowhere is not written; it is loaded as if it were the first position.
template <class Args>
inline CachePlace cache_place(const Args& args, int t) {
  using Checks = typename Args::Checks;
  constexpr int B = static_cast<int>(Args::B), P = static_cast<int>(Args::P), Q = static_cast<int>(Args::Q);
  const int position = args.position[t], request = args.request[t];
  if (!is_inside(args.faults, position, cached_positions<Args>(), Checks::position) ||
      !is_inside(args.faults, request, static_cast<int>(Args::R_largest), Checks::request))
    return {0, 0, false};
  const int page = args.page_table[request * Q + position / B];
  if (!is_inside(args.faults, page, P, Checks::page_table)) return {0, position, false};
  return {page, position, true};
}

/// Writes the keys and values of the task's rows: a head a warp, of many rows several of them at a time. Where a warp's
/// next heads go its lanes look up together, one each.
template <bool kNorm, class Args>
inline void append_heads(const Args& args) {
  constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::E) - 2, B = static_cast<int>(Args::B);
  constexpr int kAtOnce = Args::T_largest > stream::kTileRows ? 4 : Args::T_largest > kWarps / 2 ? 2 : 1;
  static_assert(kWarps % 2 == 0 && kWarpLanes % kAtOnce == 0);
  const bool is_key = warp() % 2 == 0;
  const bf16* norm = nullptr;
  if constexpr (kNorm) norm = args.k_norm;
  const int groups = static_cast<int>(args.g_end - args.g_begin), first_row = static_cast<int>(args.t_begin),
            num_heads = 2 * (static_cast<int>(min(args.t_end, args.T)) - first_row) * groups;
#pragma unroll 1
  for (int first = warp(); first < num_heads; first += kWarpLanes * kWarps) {
    const int count = min((num_heads - first + kWarps - 1) / kWarps, kWarpLanes);  // heads
    // Past the end the first one is taken again, and not written.
    const auto number = [&](int i) { return first + (i < count ? i : 0) * kWarps; };
    const auto row = [&](int i) { return first_row + number(i) / (2 * groups); };
    const auto group = [&](int i) { return static_cast<int>(args.g_begin) + number(i) / 2 % groups; };
    const CachePlace mine = cache_place(args, row(lane()));
#pragma unroll 1
    for (int done = 0; done < count; done += kAtOnce) {
      HeadOf<kNorm, Args> heads[kAtOnce];
      int positions[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        positions[i] = __shfl_sync(0xffffffffu, mine.position, done + i);
        load_head<kNorm>(heads[i], args, row(done + i), positions[i], group(done + i), is_key ? M : M + 1, norm,
                         is_key);
      }
      f32 squares[kAtOnce] = {};
      if (kNorm && is_key) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) squares[i] = heads[i].squares();
        warp_all_of(squares, Add{});
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int page = __shfl_sync(0xffffffffu, mine.page, done + i);
        const bool writes = __shfl_sync(0xffffffffu, mine.is_somewhere ? 1 : 0, done + i) != 0 && done + i < count;
        bf16* const to = cached_head<B, static_cast<int>(Args::G), D>(is_key ? args.k_cache : args.v_cache, page,
                                                                      positions[i] % B, group(done + i));
        heads[i].finish(squares[i], head_eps<Args>(), [&](int d, f32 a, f32 b) {
          if (writes) *reinterpret_cast<u32*>(to + d) = pack_bf16(a, b);
        });
      }
    }
  }
}
template <class Args>
inline void append_norm(const Args& args) {
  append_heads<true>(args);
}
template <class Args>
inline void append_plain(const Args& args) {
  append_heads<false>(args);
}

}  // namespace megalith::kernels
