// What a profile's page wants to know of a graph.
#pragma once

#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/runtime/profile_page.h"

namespace megalith::engine {

/// Per node of `graph`, in their order.
std::vector<runtime::ProfiledNode> profiled_nodes(const graph::Graph& graph);

}  // namespace megalith::engine
