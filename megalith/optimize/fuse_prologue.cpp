#include <algorithm>

#include "megalith/optimize/gates.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::TensorId;

namespace {

bool is_product(const Node& node) { return node.op->name == "linear" || node.op->name == "dequantize_linear"; }

// Its matrix; of a quantised one with the scales.
std::vector<TensorId> matrix_of(const Node& product) {
  std::vector<TensorId> matrix = {operand(product, "weight")};
  if (product.op->name == "dequantize_linear") matrix.push_back(operand(product, "scale"));
  return matrix;
}

NodeOptions options_of(const Graph& graph, const Node& product, double eps) {
  const TensorId y = operand(product, "y");
  NodeOptions options = {.attributes = {{"eps", eps}},
                         .tile = product.tile,
                         .outputs = {{"y", y}},
                         .dtypes = {{"y", graph.tensor(y).dtype}},
                         .pieces = product.pieces};
  if (product.op->name == "dequantize_linear") options.sizes["L"] = product.sizes.at("L");
  return options;
}

bool fuse(Graph& graph, const Goal& goal, const Gates& gates, const Node& norm) {
  const Uses uses(graph);
  const TensorId x = operand(norm, "x"), weight = operand(norm, "weight"), y = operand(norm, "y");
  if (uses.maker(y) == nullptr || uses.readers(y).empty()) return false;
  std::vector<Node> products;
  for (const Use& use : uses.readers(y)) {
    const Node& product = graph.nodes()[use.node];
    if (!is_product(product) || product.op->operands[use.operand].name != "x") return false;
    std::vector<graph::Tensor> inputs = {graph.tensor(x), graph.tensor(weight)};
    for (const TensorId matrix : matrix_of(product)) inputs.push_back(graph.tensor(matrix));
    // Of two that a gate brings together (pair) neither need have a body by itself.
    NodeOptions options = options_of(graph, product, norm.attributes.at("eps"));
    if (gates.has(operand(product, "y")) && goal.is_gpu())
      options.dtypes["y"] = graph.tensor(matrix_of(product)[0]).dtype;
    if (!goal.has_body(graph.registry(), "rmsnorm_" + product.op->name, inputs, options)) return false;
    products.push_back(product);
  }
  graph.erase(norm.name);
  for (const Node& product : products) {
    const size_t at = graph.number_of(product.name);
    graph.erase(product.name);
    std::vector<TensorId> inputs = {x, weight};
    std::ranges::copy(matrix_of(product), std::back_inserter(inputs));
    graph.insert(at, "rmsnorm_" + product.op->name, product.name, inputs,
                 options_of(graph, product, norm.attributes.at("eps")));
    graph.remember({"fuse_prologue", product.name, "rmsnorm, " + product.op->name, 2 * graph.tensor(y).bytes()});
  }
  return true;
}

}  // namespace

int fuse_prologue(Graph& graph, const Goal& goal) {
  std::vector<Node> norms;
  for (const Node& node : graph.nodes())
    if (node.op->name == "rmsnorm") norms.push_back(node);
  const Gates gates(graph);
  return static_cast<int>(
      std::ranges::count_if(norms, [&](const Node& norm) { return fuse(graph, goal, gates, norm); }));
}

}  // namespace megalith::optimize
