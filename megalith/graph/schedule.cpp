#include "megalith/graph/schedule.h"

#include <algorithm>

#include "megalith/graph/lower.h"

namespace megalith::graph {

namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Streams and panels are laid out once, before anything runs; and a norm's weight is loaded beside them past all order
// (kernels/cuda/mainloop/gemv_activations.cuh).
bool are_constant(const Graph& graph, const Node& node, const std::vector<std::string>& operands) {
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (is_among(operands, node.op->operands[i].name) && graph.tensor(node.operands[i]).kind != TensorKind::constant)
      return false;
  return true;
}

}  // namespace

bool takes_node(const TunedBody& body, const Graph& graph, const Node& node) {
  if (body.applies && !body.applies(body_query(graph, node))) return false;
  // A body has an order of its own, which only its author knows.
  const std::vector<SharedPair> shared = shared_pairs(node);
  const auto is_in_place = [&](const SharedPair& pair) {
    return is_among(body.in_place, node.op->operands[pair.reader].name);
  };
  if (!std::ranges::all_of(shared, is_in_place)) return false;
  if (body.streamed && !(are_constant(graph, node, body.streamed->operands) && are_constant(graph, node, {"norm"})))
    return false;
  if (node.op->epilogue && !body.has_epilogue) return false;
  return !body.packed || are_constant(graph, node, body.packed->operands);
}

const TunedBody* first_body(const Graph& graph, const Node& node, const std::string& target) {
  for (const TunedBody& body : node.op->bodies)
    if (body.target == target && takes_node(body, graph, node)) return &body;
  return nullptr;
}

Schedule schedule_in_rows(const Graph& graph, const std::string& target) {
  Schedule schedule{.target = target, .layouts = std::vector(graph.tensors().size(), Layout::rows), .nodes = {}};
  for (const Node& node : graph.nodes())
    schedule.nodes.push_back({first_body(graph, node, target), node.tile, node.pieces});
  return schedule;
}

bool takes_layout(const TunedBody* body, const Node& node, size_t operand, Layout layout) {
  const std::string& name = node.op->operands[operand].name;
  const bool wants_panels = body && body->packed && is_among(body->packed->operands, name);
  switch (layout) {
    case Layout::rows: return !wants_panels;
    case Layout::panels: return wants_panels || !body;  // a generated body reads them element by element
    case Layout::flag_in_data: return body && is_among(body->exchanged, name);
    case Layout::fragments: return body && is_among(body->blocked, name);
    case Layout::int8: return true;  // a body that streams it; others read it in place, row by row
    case Layout::head_pairs: return body && is_among(body->paired, name);
  }
  return false;
}

}  // namespace megalith::graph
