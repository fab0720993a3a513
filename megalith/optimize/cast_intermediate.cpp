#include <algorithm>

#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Tensor;
using graph::TensorId;

namespace {

bool is_multiplied_only(const graph::Graph& graph, const Uses& uses, TensorId tensor) {
  return uses.all_read_as(tensor, "linear", "x") && std::ranges::all_of(uses.readers(tensor), [&](const Use& use) {
           return graph.tensor(operand(graph.nodes()[use.node], "weight")).dtype == DType::bf16;
         });
}

}  // namespace

int cast_intermediate(graph::Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  int times = 0;
  const Uses uses(graph);
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.dtype != DType::f32 || tensor.shape.size() != 2 || tensor.shape[0].size > stream::kMaxWideRows) continue;
    const graph::Node* maker = uses.maker(id);
    if (!maker || !is_multiplied_only(graph, uses, id)) continue;
    graph.set_dtype(id, DType::bf16);
    graph.remember({"cast_intermediate", maker->name, maker->op->name, tensor.num_elements() * 4});
    ++times;
  }
  return times;
}

}  // namespace megalith::optimize
