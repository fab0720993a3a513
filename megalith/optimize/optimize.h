// Rewrites a graph for a target, by rules. Models are written in primitives that know of no target; what is fused, split,
// stacked and cast, and in which order nodes run, comes from here. A rule states an equality: what it puts in the place of
// some nodes means the same, up to where values are rounded and in which order they are added up.
#pragma once

#include <span>
#include <string>

#include "megalith/graph/graph.h"

namespace megalith::optimize {

struct Goal;

struct Rule {
  const char* name;
  const char* equality;  // for people
  /// Applies it wherever it fits and is worth it for the goal; how often it did.
  int (*apply)(graph::Graph& graph, const Goal& goal);
};

std::span<const Rule> rules();

/// Applies all rules but those that MEGALITH_DISABLE names, for a target: "cpu", "cuda:sm_90a", or "cuda" before a card is
/// known. Ids of tensors change, names of those that stay do not.
graph::Graph optimize(graph::Graph graph, const std::string& target);

}  // namespace megalith::optimize
