#include <algorithm>

#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::TensorId;

namespace {

// A product, and the operator of two of them with their gate.
struct Pair {
  const char *product, *both;
  std::vector<std::string> shared, own;  // operands
};
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all = {
      {"rmsnorm_linear", "rmsnorm_gate_up", {"x", "norm"}, {"weight"}},
      {"rmsnorm_dequantize_linear", "rmsnorm_dequantize_gate_up", {"x", "norm"}, {"weight", "scale"}},
      {"linear_rmsnorm_scale", "gate_up_rmsnorm_scale", {"x", "squares"}, {"weight"}},
  };
  return all;
}

bool fuse(Graph& graph, const Goal& goal, const Node& gated) {
  const Uses uses(graph);
  for (const Pair& pair : pairs()) {
    const Node *gate = uses.only_maker(operand(gated, "gate"), pair.product),
               *up = uses.only_maker(operand(gated, "up"), pair.product);
    if (!gate || !up || gate->attributes != up->attributes || gate->sizes != up->sizes) continue;
    if (!std::ranges::all_of(pair.shared, [&](const auto& name) { return operand(*gate, name) == operand(*up, name); }))
      continue;
    std::vector<TensorId> inputs;
    for (const std::string& name : pair.shared) inputs.push_back(operand(*gate, name));
    for (const Node* product : {gate, up})
      for (const std::string& name : pair.own) inputs.push_back(operand(*product, name));
    const TensorId y = operand(gated, "y");
    NodeOptions options = {
        .attributes = gate->attributes, .outputs = {{"y", y}}, .dtypes = {{"y", graph.tensor(y).dtype}}};
    if (gate->sizes.contains("L")) options.sizes["L"] = gate->sizes.at("L");
    std::vector<graph::Tensor> tensors;
    for (const TensorId input : inputs) tensors.push_back(graph.tensor(input));
    if (!goal.has_body(graph.registry(), pair.both, tensors, options)) continue;
    const int64_t bytes = graph.tensor(operand(gated, "gate")).bytes();
    const std::vector<std::string> products = {gate->name, up->name};
    graph.erase(products);
    const size_t at = graph.number_of(gated.name);
    graph.erase(gated.name);
    graph.insert(at, pair.both, gated.name, inputs, options);
    graph.remember({"pair", gated.name, std::string(pair.product) + " twice, silu_mul", 4 * bytes});
    return true;
  }
  return false;
}

}  // namespace

int pair(Graph& graph, const Goal& goal) {
  std::vector<Node> gated;
  for (const Node& node : graph.nodes())
    if (node.op->name == "silu_mul") gated.push_back(node);
  return static_cast<int>(std::ranges::count_if(gated, [&](const Node& node) { return fuse(graph, goal, node); }));
}

}  // namespace megalith::optimize
