// Whether tensors that somebody brought lie apart. To the compiler two tensors are two things: it orders nothing between
// them, so a byte that both have would be read and written in any order.
#pragma once

#include <map>
#include <string>

#include "megalith/graph/graph.h"

namespace megalith::runtime {

/// UserError naming two tensors with bytes in common, one of which a node writes, and that node. `memory`: addresses of
/// one address space, by tensor name; of tensors that are not the graph's nothing is asked.
void check_apart(const graph::Graph& graph, const std::map<std::string, void*>& memory);

}  // namespace megalith::runtime
