// What the operators whose weights a CPU packs have in common: their tuned bodies (kernels/cpu/gemv.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megalith/graph/operator.h"

namespace megalith::ops {

/// A body that takes floats of any kind, and `weights` in panels; `axis` counts their rows, "" if no task axis does.
/// `in_place`: inputs that may be the output.
inline graph::TunedBody panel_body(std::string name, std::vector<std::string> weights, std::string axis = "n",
                                   std::vector<std::string> in_place = {}) {
  return {.target = "cpu",
          .file = "gemv.h",
          .name = std::move(name),
          .applies = {},
          .in_place = std::move(in_place),
          .packed = graph::PackedWeights{std::move(weights), std::move(axis)}};
}

}  // namespace megalith::ops
