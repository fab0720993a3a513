// What both ways to do a decoder's attention on a GPU have in common (attention_one.cuh, attention_rows.cuh): where a
// chunk's keys and values lie, and small operations.
#pragma once

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/cuda/blocks.cuh"
#include "megalith/kernels/cuda/heads.cuh"
#include "megalith/kernels/cuda/multiply.cuh"
#include "megalith/kernels/cuda/row_table.cuh"

namespace megalith::kernels {

/// What only one warp of the block reads, past the first-level cache.
inline uint4 load_once(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

// ---- from memory into shared memory, past registers (cp.async, PTX ISA section 9.7.9.25) ----
/// 16 bytes, or zeros in their place if `bytes` is 0.
inline void copy_begin(u32 to, const bf16* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}
inline void copy_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/// Until at most `kLeft` of what this thread committed are under way.
template <int kLeft>
inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}
/// Four 8 x 8 of bf16, turned: lane 8 j + r says where row r of number j lies, and gets of each two of column lane / 4.
inline uint4 load_transposed(u32 row) {
  uint4 value;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(row)
               : "memory");
  return value;
}

/// Into the L2, a line of 128 bytes.
inline void prefetch_line(const bf16* from) { asm volatile("prefetch.global.L2 [%0];" : : "l"(from)); }

/// An 8 x 8 of bf16 turned: a lane had two values of row lane / 4, and gets two of column lane / 4.
inline u32 transposed(u32 pair) {
  u32 turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

/// Two values of f32 as two of bf16, and what rounding left of them.
struct Halves {
  u32 rounded, rest;
};
inline Halves halves(f32 a, f32 b) {
  const u32 rounded = pack_bf16(a, b);
  return {rounded, pack_bf16(a - low_f32(rounded), b - high_f32(rounded))};
}

/// How positions are dealt to chunks: in blocks of L to C of them, or all to one.
template <class Args>
struct Chunks {
  static constexpr bool kWhole = !requires { Args::C; };
  static constexpr int length() {
    if constexpr (kWhole)
      return 1 << 24;
    else
      return static_cast<int>(Args::L);
  }
  static constexpr int count() {
    if constexpr (kWhole)
      return 1;
    else
      return static_cast<int>(Args::C);
  }
};
/// Positions of chunk c in the cache, of a request that has `start` there.
template <class Args>
inline int num_cached(int start, int c) {
  if constexpr (Chunks<Args>::kWhole) return start;
  constexpr int L = Chunks<Args>::length(), C = Chunks<Args>::count();
  return start / (C * L) * L + min(max(start % (C * L) - c * L, 0), L);
}
/// The position of the text that is number n of the chunk's cached ones.
template <class Args>
inline int cached_position(int c, int n) {
  constexpr int L = Chunks<Args>::length(), C = Chunks<Args>::count();
  return Chunks<Args>::kWhole ? n : (n / L * C + c) * L + n % L;
}
/// Which page it is on.
template <class Args>
inline int page_of(const Args& args, int request, int position) {
  return args.page_table[request * static_cast<int>(Args::Q) + position / static_cast<int>(Args::B)];
}
/// Where it begins there, in both caches.
template <class Args>
inline i64 element_on_page(int page, int position, int g) {
  constexpr int B = static_cast<int>(Args::B);
  return ((i64(page) * B + position % B) * Args::G + g) * (2 * Args::H);
}
template <class Args>
inline i64 cached_element(const Args& args, int request, int g, int c, int n) {
  const int position = cached_position<Args>(c, n);
  return element_on_page<Args>(page_of(args, request, position), position, g);
}

/// Brings the chunk's first `count` cached positions into the L2, a position a thread of `threads`.
template <class Args>
inline void prefetch_positions(const Args& args, int request, int g, int c, int count, int thread, int threads) {
  constexpr int D = 2 * static_cast<int>(Args::H);
#pragma unroll 1
  for (int n = thread; n < count; n += threads) {
    const i64 element = cached_element(args, request, g, c, n);
#pragma unroll
    for (int d = 0; d < D; d += 64) {
      prefetch_line(args.k_cache + element + d);
      prefetch_line(args.v_cache + element + d);
    }
  }
}

}  // namespace megalith::kernels
