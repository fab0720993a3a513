#include "megalith/graph/interpret.h"

#include "megalith/base/error.h"

namespace megalith::graph {

namespace {

std::vector<int64_t> largest_shape(const Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const Dim& dim : tensor.shape) shape.push_back(dim.size);
  return shape;
}

// One node: its tensors under the operator's names, the dynamic sizes at their present values.
void run_node(const Graph& graph, const Node& node, const LoweredKernel& lowered, loop::Arrays& arrays) {
  loop::Binding binding = lowered.binding;
  for (const auto& [size, dynamic] : node.dynamic) {
    const DynamicSize& where = graph.dynamic_sizes().at(dynamic);
    const loop::Array& counts = arrays.at(graph.tensor(where.tensor).name);
    binding.sizes[size] = static_cast<int64_t>(counts.values[static_cast<size_t>(where.index)]);
  }
  // Arrays move in and out rather than being copied; an operand given twice is the one case that needs its own copy.
  loop::Arrays local;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    loop::Array& array = arrays.at(graph.tensor(node.operands[i]).name);
    bool repeated = false;
    for (size_t j = 0; j < node.operands.size(); ++j) repeated |= i != j && node.operands[i] == node.operands[j];
    local[node.op->operands[i].name] = repeated ? array : std::move(array);
  }
  if (node.op->reference)
    node.op->reference(binding, local);
  else
    loop::interpret(lowered.kernel, binding, local);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Operand& operand = node.op->operands[i];
    loop::Array& array = arrays.at(graph.tensor(node.operands[i]).name);
    if (operand.role != loop::Role::input || array.values.empty()) array = std::move(local[operand.name]);
  }
}

}  // namespace

int64_t interpret(const Graph& graph, const LoweredGraph& lowered, loop::Arrays& arrays, int64_t max_iterations,
                  const std::function<void(int)>& observe) {
  for (const Tensor& tensor : graph.tensors()) {
    auto [at, fresh] = arrays.emplace(tensor.name, loop::Array{});
    if (fresh) {
      MEGALITH_CHECK(tensor.kind == TensorKind::activation, "tensor \"{}\" has no value to begin with", tensor.name);
      at->second = loop::Array::zeros(largest_shape(tensor));
    }
  }
  for (int64_t iteration = 0; iteration < max_iterations; ++iteration) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      try {
        run_node(graph, node, lowered.kernels[static_cast<size_t>(lowered.kernel_of_node[i])], arrays);
      } catch (const UserError& error) {
        throw UserError(fmt::format("{} (node \"{}\", iteration {})", error.what(), node.name, iteration));
      }
      if (observe) observe(static_cast<int>(i));
    }
    if (graph.stop_tensor() && arrays.at(graph.tensor(*graph.stop_tensor()).name).values[0] != 0) return iteration + 1;
  }
  return max_iterations;
}

}  // namespace megalith::graph
