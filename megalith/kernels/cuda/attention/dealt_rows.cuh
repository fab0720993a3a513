// How the V chunks of an iteration's attention are dealt to its rows (ops/attention_dealt.cpp), so that all workers have
// something to do however few rows there are.
#pragma once

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"

namespace megalith::kernels {

/// a / b, rounded down, of a below 2^20 and b above 0: without the steps of a division, which whoever begins a task would wait
/// for. Half a unit is more than what the reciprocal is off.
inline int quick_divide(int a, int b) {
  return static_cast<int>((static_cast<f32>(a) + 0.5f) * fast_divide(1.0f, static_cast<f32>(b)));
}

/// Rows that chunks are dealt to in turn, of `rows` that there are: a row's first one has the row's number.
template <class Args>
inline int dealt_rows(int rows) {
  if constexpr (Args::T_largest == 1)
    return 1;
  else
    return max(rows, static_cast<int>(Args::U));
}
/// Whether chunks are dealt to one row or two, so that what is divided is shifted: Qwen3-0.6B's two sequences wait for that.
template <class Args>
inline constexpr bool kDealtToTwo = Args::T_largest <= 2 && Args::U <= 2;
template <class Args>
inline int divide_by_dealt(int a, int dealt) {
  return kDealtToTwo<Args> ? a >> (dealt - 1) : quick_divide(a, dealt);
}
/// Chunks that a row has at most, and as many as it has.
template <class Args>
inline constexpr int kMostChunks = Args::V < attention::kMaxChunks ? static_cast<int>(Args::V) : attention::kMaxChunks;
template <class Args>
inline int chunks_of_row(int row, int dealt) {
  if constexpr (Args::T_largest == 1) return kMostChunks<Args>;
  return min(divide_by_dealt<Args>(static_cast<int>(Args::V) - row + dealt - 1, dealt), kMostChunks<Args>);
}
/// How often all chunks of a row, of `count`, have had a block, if so many have been dealt.
template <class Args>
inline int rounds_of(int blocks, int count) {
  static_assert(Args::S / Args::L < 1 << 20);
  if constexpr (Args::T_largest == 1) return blocks / kMostChunks<Args>;
  if constexpr (kDealtToTwo<Args> && (Args::V & (Args::V - 1)) == 0) return blocks >> (31 - __clz(count));
  return quick_divide(blocks, count);
}
/// Number `number` of a row's `count` chunks; none of them if that is none of their numbers.
struct Chunk {
  int number, count;
};
/// Whose chunk share `share` of V is; nobody's if there is no such row.
struct ChunkOfRow {
  int row;
  Chunk chunk;
};
template <class Args>
inline ChunkOfRow share_of(int share, int rows) {
  if constexpr (Args::T_largest == 1) return {0, {share, kMostChunks<Args>}};
  const int dealt = dealt_rows<Args>(rows), number = divide_by_dealt<Args>(share, dealt), row = share - number * dealt;
  return {row, {number, chunks_of_row<Args>(row, dealt)}};
}

}  // namespace megalith::kernels
