// What the operators whose weights a CPU packs have in common: their tuned bodies (kernels/cpu/gemv.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megalith/graph/operator.h"
#include "megalith/kernels/digit_layout.h"
#include "megalith/kernels/row_layout.h"

namespace megalith::ops {

/// Room for the rows of activations that a body of kernels/cpu/gemv.h multiplies together.
inline auto activations_area(std::string weight) {
  return [weight = std::move(weight)](const graph::BodyQuery& q) {
    const int64_t rows = q.sizes.at("T"), columns = q.sizes.at("K");
    return int64_t{q.dtypes.at(weight) == DType::i8 ? digit_layout::bytes(rows, columns, q.sizes.at("L"))
                                                    : rows::workspace_bytes(rows, columns)};
  };
}

/// A body that takes floats of any kind, and `weights` in panels; `axis` counts their rows, "" if no task axis does.
/// `in_place`: inputs that may be the output.
inline graph::TunedBody panel_body(std::string name, std::vector<std::string> weights, std::string axis = "n",
                                   std::vector<std::string> in_place = {}) {
  return {.target = "cpu",
          .file = "gemv.h",
          .name = std::move(name),
          .applies = {},
          .in_place = std::move(in_place),
          .area_bytes = activations_area(weights[0]),
          .packed = graph::PackedWeights{std::move(weights), std::move(axis)},
          .has_epilogue = true};
}

}  // namespace megalith::ops
