// The cache of keys and values on a GPU, written behind everybody who reads it.
#pragma once

#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/qkv_heads.cuh"
#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/scheduler/position_table.cuh"

namespace megalith::kernels {

/// Writes the keys and values of this iteration's rows: a head a warp, of many rows several of them at a time.
template <bool kNorm, class Args>
inline void append_heads(const Args& args) {
  using Checks = typename Args::Checks;
  constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::E) - 2, B = static_cast<int>(Args::B);
  constexpr int P = static_cast<int>(Args::P), R = static_cast<int>(Args::R_largest), Q = static_cast<int>(Args::Q);
  constexpr int kAtOnce = Args::T_largest > kWarps / 2 ? 2 : 1;
  static_assert(kWarps % 2 == 0);
  const bool is_key = warp() % 2 == 0;
  const bf16* norm = nullptr;
  if constexpr (kNorm) norm = args.k_norm;
  const int groups = static_cast<int>(args.g_end - args.g_begin), num_heads = 2 * static_cast<int>(args.T) * groups;
#pragma unroll 1
  for (int first = warp(); first < num_heads; first += kAtOnce * kWarps) {
    HeadOf<kNorm, Args> heads[kAtOnce];
    int pages[kAtOnce], positions[kAtOnce];
    bool is_somewhere[kAtOnce];
    // Past the end the first one is taken again, and not written.
    const auto number = [&](int i) { return first + i * kWarps < num_heads ? first + i * kWarps : first; };
    const auto group = [&](int i) { return static_cast<int>(args.g_begin) + number(i) / 2 % groups; };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = number(i) / (2 * groups);
      positions[i] = args.position[t];
      const int request = args.request[t];
      // What lies nowhere is not written; it is loaded as if it were the first position.
      is_somewhere[i] = is_inside(args.faults, positions[i], cached_positions<Args>(), Checks::position) &&
                        is_inside(args.faults, request, R, Checks::request);
      if (!is_somewhere[i]) positions[i] = 0;
      pages[i] = is_somewhere[i] ? args.page_table[request * Q + positions[i] / B] : 0;
      is_somewhere[i] = is_somewhere[i] && is_inside(args.faults, pages[i], P, Checks::page_table);
      if (!is_somewhere[i]) pages[i] = 0;
      load_head<kNorm>(heads[i], args, t, positions[i], group(i), is_key ? M : M + 1, norm, is_key);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i > 0 && number(i) == first) break;
      const bool writes = is_somewhere[i];  // as all lanes say
      bf16* const to = cached_head<B, static_cast<int>(Args::G), D>(is_key ? args.k_cache : args.v_cache, pages[i],
                                                                    positions[i] % B, group(i));
      heads[i].finish(head_eps<Args>(), [&](int d, f32 a, f32 b) {
        if (writes) *reinterpret_cast<u32*>(to + d) = pack_bf16(a, b);
      });
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
