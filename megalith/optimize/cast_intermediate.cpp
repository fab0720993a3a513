#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Tensor;
using graph::TensorId;

namespace {

// The dtype of all matrices that a tensor is multiplied by, or rows that are picked of it, if it is multiplied and nothing
// else, and tensor cores take it.
std::optional<DType> multiplied_by(const graph::Graph& graph, const Uses& uses, TensorId tensor) {
  std::optional<DType> dtype;
  for (const Use& use : uses.readers(tensor)) {
    const graph::Node& reader = graph.nodes()[use.node];
    std::optional<DType> matrix;
    if (reader.op->operands[use.operand].name != "x") return std::nullopt;
    if (reader.op->name == "linear")
      matrix = graph.tensor(operand(reader, "weight")).dtype;
    else if (reader.op->name == "gather_rows")
      matrix = multiplied_by(graph, uses, operand(reader, "y"));
    if (!matrix || !dtype_is_half(*matrix) || (dtype && *dtype != *matrix)) return std::nullopt;
    dtype = matrix;
  }
  return dtype;
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
    const std::optional<DType> dtype = multiplied_by(graph, uses, id);
    if (!maker || !dtype) continue;
    graph.set_dtype(id, *dtype);
    graph.remember({"cast_intermediate", maker->name, maker->op->name, tensor.num_elements() * 4});
    ++times;
  }
  return times;
}

}  // namespace megalith::optimize
