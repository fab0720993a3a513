// Into which groups the rows of a matrix are cut for many rows of activations, and how many of them are multiplied
// abreast (kernels/gemm_layout.h says how they lie then). Chosen for the workers of the GPU that all this was tuned on,
// one a multiprocessor; right on any other.
#pragma once

#include <cstdint>

#include "megalith/base/ceil_div.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/machine/machine.h"

namespace megalith::ops {

/// Groups of `group` of a matrix's `rows` rows that the busiest worker has.
inline int64_t wide_busiest(int64_t rows, int64_t group) {
  return ceil_div(ceil_div(rows, group), machine::gpu_of_target("cuda").multiprocessors);
}

/// Rows of a chunk, of each of `matrices` matrices of `rows` rows: those with which the busiest worker has the fewest.
/// Of the same ones the longest, since every turn reads all activations.
inline int wide_group(int64_t rows, int matrices) {
  int best = 0;
  int64_t fewest = 0;
  for (int chunk_rows = 64; chunk_rows >= 32; chunk_rows -= 16) {
    const int64_t group = chunk_rows / matrices, busiest = wide_busiest(rows, group) * group;
    if (best != 0 && busiest >= fewest) continue;
    best = static_cast<int>(group);
    fewest = busiest;
  }
  return best;
}

/// Groups that are multiplied abreast, by as many parts of the block: none if the busiest worker had none for more than
/// one of them, who then share the chunks of one group.
inline int wide_abreast(int64_t rows, int64_t group, int64_t activation_rows) {
  const int parts = stream::wide_parts(activation_rows);
  return wide_busiest(rows, group) >= (parts == stream::kMaxParts ? stream::kMaxParts - 1 : parts) ? parts : 1;
}

}  // namespace megalith::ops
