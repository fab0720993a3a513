#include <algorithm>

#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Tensor;
using graph::TensorId;

namespace {

// The dtype of all matrices that a tensor is multiplied by, if it is multiplied and nothing else, and tensor cores take it.
std::optional<DType> multiplied_by(const graph::Graph& graph, const Uses& uses, TensorId tensor) {
  if (!uses.all_read_as(tensor, "linear", "x")) return std::nullopt;
  std::optional<DType> dtype;
  for (const Use& use : uses.readers(tensor)) {
    const DType matrix = graph.tensor(operand(graph.nodes()[use.node], "weight")).dtype;
    if (!dtype_is_half(matrix) || (dtype && *dtype != matrix)) return std::nullopt;
    dtype = matrix;
  }
  return dtype;
}

}  // namespace

int cast_intermediate(graph::Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  int times = 0;
  const Uses uses(graph);
  const auto cast = [&](TensorId id, const graph::Node& maker, DType dtype) {
    graph.set_dtype(id, dtype);
    graph.remember({"cast_intermediate", maker.name, maker.op->name, graph.tensor(id).num_elements() * 4});
    ++times;
  };
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.dtype != DType::f32 || tensor.shape.size() != 2 || tensor.shape[0].size > stream::kMaxWideRows) continue;
    const graph::Node* maker = uses.maker(id);
    const std::optional<DType> dtype = multiplied_by(graph, uses, id);
    if (!maker || !dtype) continue;
    cast(id, *maker, *dtype);
    // The rows that these were picked of, if nobody else reads them.
    if (maker->op->name != "gather_rows") continue;
    const TensorId all = operand(*maker, "x");
    const graph::Node* const before = uses.only_maker(all);
    const Tensor& rows = graph.tensor(all);
    if (before && rows.dtype == DType::f32 && rows.shape[0].size <= stream::kMaxWideRows) cast(all, *before, *dtype);
  }
  return times;
}

}  // namespace megalith::optimize
