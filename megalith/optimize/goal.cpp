#include "megalith/optimize/goal.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/schedule.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/machine/products.h"

namespace megalith::optimize {

using graph::Graph;

graph::Tensor like(DType dtype, std::initializer_list<int64_t> shape) {
  graph::Tensor tensor{.name = "", .dtype = dtype, .shape = {}};
  for (const int64_t size : shape) tensor.shape.emplace_back(size);
  return tensor;
}

bool Goal::has_body(const graph::Registry& registry, const std::string& op, const std::vector<graph::Tensor>& inputs,
                    graph::NodeOptions options) const {
  // Which lives no longer than this call: the registry is not copied.
  Graph trial(std::shared_ptr<const graph::Registry>(std::shared_ptr<void>(), &registry), "trial");
  std::vector<graph::TensorId> ids;
  for (const graph::Tensor& input : inputs) {
    std::vector<graph::Dim> shape;
    for (const graph::Dim& dim : input.shape) shape.emplace_back(dim.size);
    const std::string name = fmt::format("input {}", ids.size());
    const bool is_constant = input.kind == graph::TensorKind::constant;
    ids.push_back(is_constant ? trial.constant(name, input.dtype, shape) : trial.state(name, input.dtype, shape));
    if (input.quant_columns > 0 && dtype_is_half(input.dtype)) trial.quantize(ids.back(), input.quant_columns);
  }
  options.outputs.clear();
  try {
    trial.add(op, "node", ids, options);
  } catch (const UserError&) {  // its shapes do not go together
    return false;
  }
  const graph::Node& node = trial.nodes()[0];
  const graph::TunedBody* body = graph::first_body(trial, node, bodies());
  return body && leaves_room(*this, *body, graph::body_query(trial, node));
}

bool leaves_room(const Goal& goal, const graph::TunedBody& body, const graph::BodyQuery& query) {
  return !goal.is_gpu() || !body.area_bytes ||
         stream::ring_slots(goal.gpu().shared_bytes, body.area_bytes(query), goal.rows, goal.scale_bytes) > 0;
}

Goal Goal::of(const Graph& graph, const std::string& target) {
  Goal goal{target};
  const machine::Products products = goal.is_gpu() ? machine::Products::f32 : machine::chosen_products();
  goal.rounds = goal.is_gpu() || products != machine::Products::f32;
  goal.rounds_attention = products == machine::Products::amx;
  for (const graph::Node& node : graph.nodes())
    if (const auto rows = node.sizes.find("T"); rows != node.sizes.end() && node.sizes.contains("K"))
      goal.rows = std::max(goal.rows, rows->second);
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.quant_columns > 0 && dtype_is_half(tensor.dtype) && goal.is_gpu()) goal.scale_bytes = int8::kScaleBytes;
  return goal;
}

}  // namespace megalith::optimize
