#include <algorithm>

#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::TensorId;

namespace {

std::vector<graph::Tensor> tensors_of(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<graph::Tensor> tensors;
  for (const TensorId id : ids) tensors.push_back(graph.tensor(id));
  return tensors;
}

// Who multiplies or picks rows, with f32 in, takes the copy instead.
void redirect(Graph& graph, TensorId from, TensorId to) {
  const Uses uses(graph);
  for (const Use& use : uses.readers(from)) {
    const Node& node = graph.nodes()[use.node];
    const bool takes_any = node.op->name == "rmsnorm" || node.op->name == "gather_rows";
    if (takes_any && node.op->operands[use.operand].name == "x") graph.redirect(use.node, use.operand, to);
  }
}

bool is_normalised(const Graph& graph, TensorId x) {
  const Uses uses(graph);
  return std::ranges::any_of(uses.readers(x), [&](const Use& use) {
    const Node& node = graph.nodes()[use.node];
    if (node.op->name == "rmsnorm") return true;
    return node.op->name == "gather_rows" && !uses.readers(operand(node, "y")).empty() &&
           uses.all_read_as(operand(node, "y"), "rmsnorm", "x");
  });
}

// add(residual, linear(x)), where somebody wants it in bf16, too; else fuse_epilogue adds.
bool fuse_sum(Graph& graph, const Goal& goal, const Node& sum) {
  const TensorId y = operand(sum, "y");
  if (!is_normalised(graph, y)) return false;
  const Uses uses(graph);
  for (const auto& [made, other] : {std::pair{"b", "a"}, std::pair{"a", "b"}}) {
    const Node* found = uses.only_maker(operand(sum, made), "linear");
    if (!found) continue;
    const Node product = *found;
    const std::vector<TensorId> inputs = {operand(product, "x"), operand(product, "weight"), operand(sum, other)};
    const NodeOptions options = {
        .tile = product.tile,
        .outputs = {{"y", y}},
        .dtypes = {{"y", graph.tensor(y).dtype}, {"copy", graph.tensor(operand(product, "weight")).dtype}},
        .pieces = product.pieces};
    if (!goal.has_body(graph.registry(), "linear_add_copy", tensors_of(graph, inputs), options)) continue;
    const int64_t bytes = 2 * graph.tensor(operand(product, "y")).bytes();
    graph.erase(product.name);
    const size_t at = graph.number_of(sum.name);
    graph.erase(sum.name);
    redirect(graph, y, graph.insert(at, "linear_add_copy", product.name, inputs, options)[1]);
    graph.remember({"fuse_residual", product.name, "linear, add", bytes});
    return true;
  }
  return false;
}

// embedding(ids), which a norm reads: a second time, as it is in the table.
bool copy_lookup(Graph& graph, const Node& lookup) {
  const TensorId y = operand(lookup, "y");
  const int64_t rows = graph.tensor(y).shape[0].size, columns = graph.tensor(y).shape[1].size;
  if (graph.tensor(y).dtype != DType::f32 || !dtype_is_half(graph.tensor(operand(lookup, "weight")).dtype) ||
      rows > stream::kMaxRows || !is_normalised(graph, y))
    return false;
  const size_t at = graph.number_of(lookup.name);
  const std::vector<TensorId> inputs = {operand(lookup, "ids"), operand(lookup, "weight")};
  graph.erase(lookup.name);
  const auto copy = graph.insert(at, "embedding", lookup.name + "_copy", inputs,
                                 {.tile = {{"h", columns}}, .dtypes = {{"y", graph.tensor(inputs[1]).dtype}}});
  graph.insert(at + 1, "embedding", lookup.name, inputs, {.tile = {{"h", columns}}, .outputs = {{"y", y}}});
  redirect(graph, y, copy[0]);
  graph.remember({"fuse_residual", lookup.name, "embedding", 0});
  return true;
}

}  // namespace

int fuse_residual(Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  std::vector<Node> sums, lookups;
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "add") sums.push_back(node);
    if (node.op->name == "embedding") lookups.push_back(node);
  }
  int times = 0;
  for (const Node& lookup : lookups) times += copy_lookup(graph, lookup);
  for (const Node& sum : sums) times += fuse_sum(graph, goal, sum);
  return times;
}

}  // namespace megalith::optimize
