#include "megalith/engine/profiled_nodes.h"

#include <algorithm>

namespace megalith::engine {

std::vector<runtime::ProfiledNode> profiled_nodes(const graph::Graph& graph) {
  std::vector<runtime::ProfiledNode> nodes;
  for (const graph::Node& node : graph.nodes())
    nodes.push_back({node.op->name, std::ranges::any_of(node.op->operands, [](const graph::Operand& operand) {
                       return !operand.index_into.empty();
                     })});
  return nodes;
}

}  // namespace megalith::engine
