// Gates of an MLP, as rules look for them: what one or several nodes make of two products of the same rows, element by
// element. silu(x G^T) * (x U^T) is one.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/ops/fused/gate_up.h"

namespace megalith::optimize {

struct FoundGate {
  std::vector<std::string> nodes;  // in order; the last one makes the result
  graph::TensorId result;
  std::array<graph::TensorId, 2> values;     // what the products are, which nobody else reads
  std::vector<graph::TensorId> besides;      // constants that it reads, a value for each column
  ops::Gate gate;                            // how the operator of both products is made of the nodes' operators
  std::map<std::string, double> attributes;  // of that
};

/// All gates of a graph, which no node has two of.
class Gates {
 public:
  explicit Gates(const graph::Graph& graph);

  const std::vector<FoundGate>& all() const { return found_; }
  /// Whether a product is one of the two of a gate.
  bool has(graph::TensorId value) const { return values_.contains(value); }

 private:
  std::vector<FoundGate> found_;
  std::set<graph::TensorId> values_;
};

}  // namespace megalith::optimize
