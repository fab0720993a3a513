// Rewrites a graph for a target, by rules. A rule states an equality: what it puts in the place of some nodes means the
// same, up to where values are rounded. The new operators are derived: their loop kernels are made of those that they stand
// for (loop/transform/), and everything else follows from that as for any operator.
#pragma once

#include <span>
#include <string>

#include "megalith/graph/graph.h"

namespace megalith::optimize {

struct Rule {
  const char* name;
  const char* equality;  // for people
  /// Applies it wherever it fits and is worth it on the target, "cpu" or "cuda"; how often it did.
  int (*apply)(graph::Graph& graph, const std::string& target);
};

std::span<const Rule> rules();

/// Applies all rules but those that MEGALITH_DISABLE names. Ids of tensors may change, names of those that stay do not.
graph::Graph optimize(graph::Graph graph, const std::string& target);

}  // namespace megalith::optimize
