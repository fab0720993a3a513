#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "megalith/ops/fused/gate_up.h"
#include "megalith/optimize/gates.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::Operator;
using graph::Registry;
using graph::TensorId;

namespace {

// With an operator that the graph may not know yet.
std::shared_ptr<const Registry> registry_with(const std::shared_ptr<const Registry>& registry, const Operator& op) {
  if (registry->has(op.name) && definition(registry->get(op.name)) == definition(op)) return registry;
  auto more = std::make_shared<Registry>(*registry);
  more->replace(op);
  return more;
}

// Operators of a product and a gate, which layers have in common.
using Operators = std::map<std::string, Operator>;

const Operator& operator_of(const ops::PairedProduct& pair, const ops::Gate& gate, const Registry& registry,
                            Operators& known) {
  const std::string key = fmt::format("{}: {}", pair.product, gate.program);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, pair.with(gate, registry)).first->second;
}

// The node that lets the next iteration begin stays what it is.
bool has_gate_node(const Graph& graph, std::span<const std::string> names) {
  const auto node = graph.gate_node();
  return node && std::ranges::find(names, graph.nodes()[static_cast<size_t>(*node)].name) != names.end();
}

bool fuse(Graph& graph, const Goal& goal, const FoundGate& found, Operators& known) {
  const Uses uses(graph);
  const Node &gate = *uses.maker(found.values[0]), &up = *uses.maker(found.values[1]);
  std::vector<std::string> gone = {gate.name, up.name};
  gone.insert(gone.end(), found.nodes.begin(), found.nodes.end());
  if (has_gate_node(graph, gone)) return false;
  const auto pair = std::ranges::find_if(ops::paired_products(), [&](const ops::PairedProduct& product) {
    return gate.op->name == product.product && up.op->name == product.product;
  });
  if (pair == ops::paired_products().end() || gate.attributes != up.attributes || gate.sizes != up.sizes ||
      !std::ranges::all_of(pair->shared, [&](const auto& name) { return operand(gate, name) == operand(up, name); }))
    return false;
  std::vector<TensorId> inputs;
  for (const std::string& name : pair->shared) inputs.push_back(operand(gate, name));
  for (const Node* product : {&gate, &up})
    for (const std::string& name : pair->own) inputs.push_back(operand(*product, name));
  inputs.insert(inputs.end(), found.besides.begin(), found.besides.end());
  std::vector<graph::Tensor> tensors;
  for (const TensorId input : inputs) tensors.push_back(graph.tensor(input));

  NodeOptions options = {.attributes = gate.attributes,
                         .outputs = {{"y", found.result}},
                         .dtypes = {{"y", graph.tensor(found.result).dtype}}};
  options.attributes.insert(found.attributes.begin(), found.attributes.end());
  if (gate.sizes.contains("L")) options.sizes["L"] = gate.sizes.at("L");
  const Operator& op = operator_of(*pair, found.gate, graph.registry(), known);
  const auto registry = registry_with(graph.shared_registry(), op);
  if (!goal.has_body(*registry, op.name, tensors, options)) return false;

  const int64_t bytes = graph.tensor(found.values[0]).bytes();
  const std::string name = found.nodes.back();
  gone.pop_back();
  graph.erase(gone);
  const size_t at = graph.number_of(name);
  graph.erase(name);
  graph.set_registry(registry);
  graph.insert(at, op.name, name, inputs, options);
  graph.remember({"pair", name, fmt::format("{} twice, {}", pair->product, found.gate.name), 4 * bytes});
  return true;
}

}  // namespace

int pair(Graph& graph, const Goal& goal) {
  Operators known;
  int times = 0;
  const Gates gates(graph);
  for (const FoundGate& found : gates.all()) times += fuse(graph, goal, found, known);
  return times;
}

}  // namespace megalith::optimize
