#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Tensor;
using graph::TensorId;

namespace {

// The dtype of a matrix, if who multiplies by it rounds activations to it: tensor cores do, also what they make of int8, and
// where a CPU's products round, those with bf16.
std::optional<DType> multiplied_as(const Goal& goal, const Tensor& matrix) {
  const bool is_rounded =
      goal.is_gpu() ? dtype_is_half(matrix.dtype) : matrix.dtype == DType::bf16 && matrix.quant_columns == 0;
  return is_rounded ? std::optional(matrix.dtype) : std::nullopt;
}

// What a CPU's operators around a cache round an operand to, those of tiles queries, too.
std::optional<DType> cached_as(const graph::Graph& graph, const Goal& goal, const graph::Node& reader,
                               const std::string& name) {
  if (goal.is_gpu()) return std::nullopt;
  const bool is_appended = reader.op->name == "kv_append" && (name == "k" || name == "v");
  const bool is_query = reader.op->name == "attention" && name == "q" && goal.rounds_attention;
  if (!is_appended && !is_query) return std::nullopt;
  const DType cache = graph.tensor(operand(reader, name == "v" ? "v_cache" : "k_cache")).dtype;
  return dtype_is_half(cache) && (is_appended || cache == DType::bf16) ? std::optional(cache) : std::nullopt;
}

// What all that read a tensor, or rows that are picked of it, round it to.
std::optional<DType> read_as(const graph::Graph& graph, const Uses& uses, const Goal& goal, TensorId tensor) {
  std::optional<DType> dtype;
  for (const Use& use : uses.readers(tensor)) {
    const graph::Node& reader = graph.nodes()[use.node];
    const std::string& name = reader.op->operands[use.operand].name;
    const std::optional<DType> rounded =
        reader.op->name == "linear" && name == "x"        ? multiplied_as(goal, graph.tensor(operand(reader, "weight")))
        : reader.op->name == "gather_rows" && name == "x" ? read_as(graph, uses, goal, operand(reader, "y"))
                                                          : cached_as(graph, goal, reader, name);
    if (!rounded || (dtype && *dtype != *rounded)) return std::nullopt;
    dtype = rounded;
  }
  return dtype;
}

}  // namespace

int cast_intermediate(graph::Graph& graph, const Goal& goal) {
  if (!goal.rounds) return 0;
  int times = 0;
  const Uses uses(graph);
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.dtype != DType::f32 || tensor.shape.size() != 2) continue;
    if (goal.is_gpu() && tensor.shape[0].size > stream::kMaxWideRows) continue;
    const graph::Node* maker = uses.maker(id);
    const std::optional<DType> dtype = read_as(graph, uses, goal, id);
    if (!maker || !dtype) continue;
    graph.set_dtype(id, *dtype);
    graph.remember({"cast_intermediate", maker->name, maker->op->name, tensor.num_elements() * 4});
    ++times;
  }
  return times;
}

}  // namespace megalith::optimize
