#include "megalith/base/ceil_div.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/stream_choices.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::Tensor;
using graph::TensorId;

namespace {

// Columns of a chunk for a few rows: four for each lane of a warp.
constexpr int64_t kColumns = 128;

class ArgmaxFusion {
 public:
  ArgmaxFusion(Graph& graph, const Goal& goal, const Node& search, const Node& product)
      : graph_(graph), goal_(goal), search_(search), product_(product) {}

  bool run() {
    const TensorId x = operand(product_, "x");
    const Uses uses(graph_);
    if (const Node* norm = uses.only_maker(x, "rmsnorm")) {
      // What only the norm reads may be as narrow as the product wants it.
      const TensorId rows = operand(*norm, "x");
      const bool may_be_narrow = uses.only_maker(rows, "gather_rows") != nullptr;
      Tensor narrow = graph_.tensor(rows);
      const DType dtype = graph_.tensor(operand(product_, "weight")).dtype;
      if (may_be_narrow) narrow.dtype = dtype;
      const Node copy = *norm;
      if (try_op("rmsnorm_linear_argmax", {narrow, graph_.tensor(operand(copy, "weight"))}, kColumns)) {
        if (may_be_narrow) graph_.set_dtype(rows, dtype);
        const double eps = copy.attributes.at("eps");
        graph_.erase(copy.name);
        replace("rmsnorm_linear_argmax", {rows, operand(copy, "weight")}, kColumns, {{"eps", eps}});
        return true;
      }
    }
    const int64_t group = ops::wide_group(product_.sizes.at("N"), 1, stream::kWideRows);
    if (!try_op("linear_argmax", {graph_.tensor(x)}, group)) return false;
    replace("linear_argmax", {x}, group, {});
    return true;
  }

 private:
  NodeOptions options(int64_t columns) const {
    return {.sizes = {{"C", ceil_div(product_.sizes.at("N"), columns)}, {"L", columns}},
            .dtypes = {{"logits", graph_.tensor(operand(product_, "y")).dtype}, {"value", DType::f32}}};
  }
  bool try_op(const std::string& op, std::vector<Tensor> inputs, int64_t columns) const {
    inputs.push_back(graph_.tensor(operand(product_, "weight")));
    return goal_.has_body(graph_.registry(), op, inputs, options(columns));
  }
  void replace(const std::string& op, std::vector<TensorId> inputs, int64_t columns,
               std::map<std::string, double> attributes) {
    inputs.push_back(operand(product_, "weight"));
    NodeOptions node = options(columns);
    node.attributes = std::move(attributes);
    node.outputs = {{"logits", operand(product_, "y")}};
    graph_.erase(product_.name);
    const size_t at = graph_.number_of(search_.name);
    graph_.erase(search_.name);
    const auto parts = graph_.insert(at, op, product_.name, inputs, node);
    graph_.insert(at + 1, "argmax_reduce", search_.name, {parts[1], parts[2]},
                  {.outputs = {{"best", operand(search_, "best")}}});
    graph_.remember({"fuse_argmax", product_.name, "linear, argmax", graph_.tensor(operand(product_, "y")).bytes()});
  }

  Graph& graph_;
  const Goal& goal_;
  const Node search_, product_;
};

}  // namespace

int fuse_argmax(Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  std::vector<Node> searches;
  for (const Node& node : graph.nodes())
    if (node.op->name == "argmax") searches.push_back(node);
  int times = 0;
  for (const Node& search : searches) {
    // The logits may be a state, which others read behind it.
    const TensorId logits = operand(search, "x");
    for (const Node& node : graph.nodes())
      if (node.op->name == "linear" && operand(node, "y") == logits) {
        times += ArgmaxFusion(graph, goal, search, node).run();
        break;
      }
  }
  return times;
}

}  // namespace megalith::optimize
