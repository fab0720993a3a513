// The cache of keys and values on a GPU, written behind everybody who reads it.
#pragma once

#include "megalith/kernels/cuda/heads.cuh"

namespace megalith::kernels {

/// Writes the keys and values of this iteration's rows: a head a warp.
template <bool kNorm, class Args>
inline void append_heads(const Args& args) {
  constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::E) - 2, B = static_cast<int>(Args::B);
  const int groups = static_cast<int>(args.g_end - args.g_begin), num_heads = 2 * static_cast<int>(args.T) * groups;
#pragma unroll 1
  for (int h = warp(); h < num_heads; h += kWarps) {
    const int g = static_cast<int>(args.g_begin) + h / 2 % groups, t = h / (2 * groups), position = args.position[t];
    const int page = args.page_table[args.request[t] * static_cast<int>(Args::Q) + position / B];
    bf16* const to = (h % 2 == 0 ? args.k_cache : args.v_cache) + ((i64(page) * B + position % B) * Args::G + g) * D;
    const bf16* norm = nullptr;
    if constexpr (kNorm) norm = h % 2 == 0 ? args.k_norm : nullptr;
    each_qkv_pair(args, t, position, g, M + h % 2, norm, h % 2 == 0,
                  [&](int d, f32 a, f32 b) { *reinterpret_cast<u32*>(to + d) = pack_bf16(a, b); });
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
