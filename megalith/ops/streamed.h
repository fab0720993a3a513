// What the operators whose weights a GPU streams have in common: when their tuned bodies apply, and what they need.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "megalith/graph/operator.h"
#include "megalith/kernels/stream_layout.h"

namespace megalith::ops {

inline bool all_are(const graph::BodyQuery& query, std::initializer_list<const char*> operands, DType dtype) {
  return std::all_of(operands.begin(), operands.end(), [&](const char* o) { return query.dtypes.at(o) == dtype; });
}

/// Few rows of activations, and columns in whole 16-byte pieces.
inline bool streams(const graph::BodyQuery& query, const char* rows = "T", const char* columns = "K") {
  return query.sizes.at(rows) <= stream::kMostRows && query.sizes.at(columns) % 8 == 0;
}

/// Shared memory of kernels/cuda/multiply.cuh.
inline auto multiply_area(std::string rows = "T", bool splits = false) {
  return [=](const graph::BodyQuery& query) {
    return stream::scratch_bytes(query.sizes.at(rows), query.sizes.at("K"), splits);
  };
}

}  // namespace megalith::ops
