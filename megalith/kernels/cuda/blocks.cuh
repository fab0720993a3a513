// Activations in blocks (kernels/row_blocks.h), which many rows of them travel in on a GPU.
#pragma once

#include "megalith/kernels/cuda/words.cuh"
#include "megalith/kernels/row_blocks.h"

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

}  // namespace megalith::kernels
