#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Node;
using graph::Tensor;
using graph::TensorId;

namespace {

// Whether all who read a matrix have an operator for whole numbers in its place.
bool is_for_products(const graph::Graph& graph, const Uses& uses, TensorId matrix) {
  for (const Use& use : uses.readers(matrix)) {
    const Node& node = graph.nodes()[use.node];
    if ((node.op->name != "linear" && node.op->name != "embedding") || node.op->operands[use.operand].name != "weight")
      return false;
  }
  return true;
}

}  // namespace

int split_scales(graph::Graph& graph, const Goal& goal) {
  if (goal.is_gpu()) return 0;
  int times = 0;
  const Uses uses(graph);
  const auto num_tensors = static_cast<TensorId>(graph.tensors().size());
  for (TensorId matrix = 0; matrix < num_tensors; ++matrix) {
    const Tensor before = graph.tensor(matrix);
    if (before.quant_columns == 0 || !dtype_is_float(before.dtype) || !is_for_products(graph, uses, matrix)) continue;
    const TensorId scale = graph.split_scales(matrix);
    const int64_t bytes_saved = before.bytes() - graph.tensor(matrix).bytes() - graph.tensor(scale).bytes();
    for (const Use& use : uses.readers(matrix)) {
      const Node node = graph.nodes()[use.node];
      const std::string op = node.op->name;
      graph::NodeOptions options;
      options.sizes["L"] = before.quant_columns;
      options.tile = node.tile;
      options.pieces = node.pieces;
      options.outputs["y"] = operand(node, "y");
      graph.replace(use.node, "dequantize_" + op, node.name, {node.operands[0], matrix, scale}, options);
      graph.remember({"split_scales", node.name, op, op == "linear" ? bytes_saved : 0});  // a lookup reads a few rows
      ++times;
    }
  }
  return times;
}

}  // namespace megalith::optimize
