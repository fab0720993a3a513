// Activations in blocks (kernels/row_blocks.h), which more rows of them than travel as words do in on a GPU.
#pragma once

#include "megalith/kernels/cuda/words.cuh"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// A tensor [kRows, kColumns] of bf16 in blocks.
template <class T, i64 kRows, i64 kColumns>
struct Blocked {
  T* at;
};

/// Elements `index` and `index` + 1, index even, counted as if rows lay one behind the other.
template <i64 kRows, i64 kColumns>
inline void put_pair(Blocked<bf16, kRows, kColumns> to, i64 index, f32 low, f32 high, Epoch) {
  const u32 at = static_cast<u32>(index), row = at / static_cast<u32>(kColumns),
            column = at % static_cast<u32>(kColumns);
  *reinterpret_cast<u32*>(to.at + row_blocks::index(row, column, kRows)) = pack_bf16(low, high);
}

/// Of few rows where an element stands does not depend on how many columns there are: one type for all that projections
/// write.
template <i64 kRows>
struct FewBlocks {
  bf16* at;
};
template <i64 kRows, i64 kColumns>
inline FewBlocks<kRows> as_written(Blocked<bf16, kRows, kColumns> blocks) {
  static_assert(kRows <= stream::kMaxRows);
  return {blocks.at};
}
template <class Y>
inline Y as_written(Y y) {
  return y;
}
/// Columns `column` and `column` + 1 of a row; `index`: of the first one, as put_pair() counts them.
template <class Y>
inline void put_pair_of(Y to, int, int, int index, f32 low, f32 high, Epoch epoch) {
  put_pair(to, index, low, high, epoch);
}
template <i64 kRows>
inline void put_pair_of(FewBlocks<kRows> to, int row, int column, int, f32 low, f32 high, Epoch) {
  const u32 at = row_blocks::index(static_cast<u32>(row), static_cast<u32>(column), kRows);
  *reinterpret_cast<u32*>(to.at + at) = pack_bf16(low, high);
}

}  // namespace megalith::kernels
