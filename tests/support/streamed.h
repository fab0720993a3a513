// Whether a GPU would stream the weights of a graph's products.
#pragma once

#include <string>

#include "megalith/graph/graph.h"
#include "megalith/optimize/schedule.h"

namespace megalith::testing {

/// There are products, and all of them have a body that streams.
inline bool streams_all_products(const graph::Graph& graph, const std::string& target = "cuda") {
  const graph::Schedule schedule = optimize::make_schedule(graph, target);
  bool any = false;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const std::string& op = graph.nodes()[n].op->name;
    if (op.find("linear") == std::string::npos && op.find("gate_up") == std::string::npos) continue;
    const graph::TunedBody* body = schedule.body(n);
    if (!body || !body->streamed) return false;
    any = true;
  }
  return any;
}

}  // namespace megalith::testing
