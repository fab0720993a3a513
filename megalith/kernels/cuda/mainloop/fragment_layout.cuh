// Activations in blocks (kernels/row_blocks.h), which more rows of them than travel as words do in on a GPU.
#pragma once

#include "megalith/kernels/cuda/common/reduce.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// A tensor [kRows, kColumns] of bf16 or f16 in blocks.
template <class T, i64 kRows, i64 kColumns>
struct Blocked {
  T* at;
};

/// Of what a tensor is, however it lies.
template <class X>
struct ElementOf;
template <class T>
struct ElementOf<const T*> {
  using Type = T;
};
template <class T>
struct ElementOf<Words<T>> {
  using Type = T;
};
template <class T, i64 kRows, i64 kColumns>
struct ElementOf<Blocked<const T, kRows, kColumns>> {
  using Type = T;
};
template <class T, i64 kRows, i64 kColumns>
struct ElementOf<Blocked<T, kRows, kColumns>> {
  using Type = T;
};
template <class X>
struct ElementOf<const X> : ElementOf<X> {};
template <class X>
using HalfOf = typename ElementOf<X>::Type;

/// Where element `index` is, counted as if rows lay one behind the other.
template <class T, i64 kRows, i64 kColumns>
inline T* element_at(Blocked<T, kRows, kColumns> x, i64 index) {
  const u32 at = static_cast<u32>(index), row = at / static_cast<u32>(kColumns),
            column = at % static_cast<u32>(kColumns);
  return x.at + row_blocks::index(row, column, kRows);
}
/// Elements `index` and `index` + 1, index even, counted so.
template <Half T, i64 kRows, i64 kColumns>
inline void put_pair(Blocked<T, kRows, kColumns> to, i64 index, f32 low, f32 high, Epoch) {
  *reinterpret_cast<u32*>(element_at(to, index)) = Pair<T>::of(low, high);
}
template <Half T, i64 kRows, i64 kColumns>
inline float2 get_pair_f32(Blocked<const T, kRows, kColumns> from, i64 index, Epoch) {
  const u32 pair = *reinterpret_cast<const u32*>(element_at(from, index));
  return {Pair<T>::low(pair), Pair<T>::high(pair)};
}

/// Registers of the first operand for two steps of 16 columns: rows 16 m + lane / 4 and eight further.
struct Quads {
  uint4 steps[2];
};

/// Whether that is how it lies.
template <class X>
inline constexpr bool kIsBlocked = false;
template <class T, i64 kRows, i64 kColumns>
inline constexpr bool kIsBlocked<Blocked<T, kRows, kColumns>> = true;

/// Of a row, of 32 columns from `column` on that are a block's, what a lane has: columns 8 j + lane % 4 * 2 and the next as
/// pairs[j]. It lies together where the tensor cores read it.
template <Half T, i64 kRows, i64 kColumns>
inline void put_block_of_row(Blocked<T, kRows, kColumns> to, int row, int column, const u32 (&pairs)[4]) {
  const auto at = [&](int of_column) {
    return to.at + row_blocks::index(static_cast<u32>(row), static_cast<u32>(column + of_column), kRows);
  };
  if constexpr (row_blocks::are_shared(kRows)) {
    *reinterpret_cast<uint4*>(at(lane() % 4 * 2)) = {pairs[0], pairs[1], pairs[2], pairs[3]};
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) *reinterpret_cast<u32*>(at(8 * j + lane() % 4 * 2)) = pairs[j];
  }
}

/// By a warp, of the first `count` of 16 rows from `row` on that begin a tile of a block, 32 columns from `column` on: a lane
/// has of rows lane / 4 and eight further columns 8 j + lane % 4 * 2 and the next, as pairs[j][0] and pairs[j][1]. What it has
/// of a row lies together where the tensor cores read it; else of all 16 two lanes exchange what they have, so each writes 32
/// bytes that lie together.
template <Half T, i64 kRows, i64 kColumns>
inline void put_tile(Blocked<T, kRows, kColumns> to, int row, int column, int count, const u32 (&pairs)[4][2]) {
  const auto at = [&](int of_row, int of_column) {
    return to.at + row_blocks::index(static_cast<u32>(row + of_row), static_cast<u32>(column + of_column), kRows);
  };
  if (row_blocks::are_shared(kRows) || count < row_blocks::kRows) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (const int of_lane = lane() / 4 + 8 * half; of_lane < count)
        put_block_of_row(to, row + of_lane, column, {pairs[0][half], pairs[1][half], pairs[2][half], pairs[3][half]});
    return;
  }
  const bool is_odd = lane() % 2 != 0;
  T* const mine_at = at(lane() / 4, (is_odd ? 16 : 0) + lane() % 4 / 2 * 4);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    u32 mine[2], others[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mine[half] = is_odd ? pairs[2 + i][half] : pairs[i][half];
      others[half] = from_lane(is_odd ? pairs[i][half] : pairs[2 + i][half], 1);
    }
    *reinterpret_cast<uint4*>(mine_at + 8 * i) =
        is_odd ? uint4{others[0], others[1], mine[0], mine[1]} : uint4{mine[0], mine[1], others[0], others[1]};
  }
}

/// Of few rows where an element stands does not depend on how many columns there are: one type for all that projections
/// write.
template <Half T, i64 kRows>
struct FewBlocks {
  T* at;
};
template <Half T, i64 kRows, i64 kColumns>
inline FewBlocks<T, kRows> as_written(Blocked<T, kRows, kColumns> blocks) {
  static_assert(kRows <= stream::kMaxRows);
  return {blocks.at};
}
template <class Y>
inline Y as_written(Y y) {
  return y;
}
/// Whether what is written is made of two products, by an epilogue (epilogue/finished.cuh).
template <class Y>
struct IsGated {
  static constexpr bool kIs = false;
};

/// Columns `column` and `column` + 1 of a row; `index`: of the first one, as put_pair() counts them.
template <class Y>
inline void put_pair_of(Y to, int, int, int index, f32 low, f32 high, Epoch epoch) {
  put_pair(to, index, low, high, epoch);
}
template <Half T, i64 kRows>
inline void put_pair_of(FewBlocks<T, kRows> to, int row, int column, int, f32 low, f32 high, Epoch) {
  const u32 at = row_blocks::index(static_cast<u32>(row), static_cast<u32>(column), kRows);
  *reinterpret_cast<u32*>(to.at + at) = Pair<T>::of(low, high);
}

}  // namespace megalith::kernels
