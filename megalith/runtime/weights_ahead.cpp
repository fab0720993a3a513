#include "megalith/runtime/weights_ahead.h"

#include <algorithm>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/optimize/layout.h"

namespace megalith::runtime {

namespace {

const graph::PackedWeights* packed_weights(const graph::Schedule& schedule, int node) {
  const graph::TunedBody* body = schedule.body(static_cast<size_t>(node));
  return body && body->packed ? &*body->packed : nullptr;
}

// The panels that a task begins with, those of its matrices in turn. Scales are too short to be asked for.
WeightsAhead first_panels(const graph::Graph& graph, const graph::Schedule& schedule, const task::Task& task,
                          const std::vector<void*>& addresses) {
  const graph::Node& node = graph.nodes()[static_cast<size_t>(task.node)];
  const graph::PackedWeights& packed = *packed_weights(schedule, task.node);
  std::vector<graph::TensorId> matrices;
  for (const std::string& operand : packed.operands)
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].name == operand &&
          (matrices.empty() || graph.tensor(node.operands[i]).dtype == graph.tensor(matrices[0]).dtype))
        matrices.push_back(node.operands[i]);
  MEGALITH_ASSERT(!matrices.empty(), "[weights ahead] \"{}\" has no packed operand", node.name);

  const auto range = std::ranges::find(task.tile, packed.axis, &loop::Range::iname);
  const int64_t num_rows = graph.tensor(matrices[0]).shape[0].size;
  const int64_t begin = range == task.tile.end() ? 0 : range->begin;
  const int64_t end = range == task.tile.end() ? num_rows : range->end;
  WeightsAhead result;
  for (size_t p = 0; p < result.size(); ++p) {
    const graph::Tensor& matrix = graph.tensor(matrices[p % matrices.size()]);
    const auto panel = static_cast<int64_t>(p / matrices.size());
    const int64_t row = std::min(begin / panel::kRows + panel, (end - 1) / panel::kRows) * panel::kRows;
    const int64_t at = panel::index(row, 0, matrix.shape[1].size, optimize::panel_columns(matrix.dtype));
    result[p] = static_cast<const std::byte*>(addresses[static_cast<size_t>(matrices[p % matrices.size()])]) +
                at * dtype_bytes(matrix.dtype);
  }
  return result;
}

}  // namespace

std::vector<WeightsAhead> add_weights_ahead(ImageParts& parts, const graph::Graph& graph,
                                            const jit::CompiledKernel& kernel, const std::vector<void*>& addresses) {
  std::vector<WeightsAhead> ahead(kernel.tasks.tasks.size());
  for (const std::vector<int>& list : kernel.tasks.workers) {
    std::vector<size_t> products;
    for (int t : list)
      if (packed_weights(kernel.schedule, kernel.tasks.tasks[static_cast<size_t>(t)].node))
        products.push_back(static_cast<size_t>(t));
    for (size_t i = 0; i < products.size(); ++i) {
      const size_t task = products[i], next = products[(i + 1) % products.size()];
      ahead[task] = first_panels(graph, kernel.schedule, kernel.tasks.tasks[next], addresses);
      const u32 first = parts.first_operands[task], count = parts.num_operands[task];
      parts.first_operands[task] = static_cast<u32>(parts.operands.size());
      for (u32 operand = 0; operand < count; ++operand) parts.operands.push_back(parts.operands[first + operand]);
      parts.operands.push_back(&ahead[task]);
      parts.num_operands[task] = count + 1;
    }
  }
  return ahead;
}

}  // namespace megalith::runtime
