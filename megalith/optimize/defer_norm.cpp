#include <algorithm>

#include "megalith/kernels/half_range.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/stream_choices.h"
#include "megalith/optimize/gates.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::Tensor;
using graph::TensorId;

namespace {

// What makes the rows that are normalised: a lookup, or a product that something is added to.
struct Maker {
  Node last;  // embedding or add
  std::optional<Node> product = {};
  TensorId residual = -1;
};

std::optional<Maker> maker_of(const Uses& uses, TensorId x) {
  if (const Node* lookup = uses.maker(x, "embedding")) return Maker{*lookup};
  const Node* sum = uses.maker(x, "add");
  if (!sum) return std::nullopt;
  for (const auto& [product, residual] : {std::pair{"b", "a"}, std::pair{"a", "b"}})
    if (const Node* linear = uses.only_maker(operand(*sum, product), "linear"))
      return Maker{*sum, *linear, operand(*sum, residual)};
  return std::nullopt;
}

struct Deferral {
  Node norm;
  TensorId x;       // the rows that have a norm in parts
  int64_t columns;  // whose squares are one sum
  bool stays;       // the norm: it is of some of those rows, or a largest column is looked for behind it
};

class NormDeferral {
 public:
  NormDeferral(Graph& graph, const Goal& goal, const Gates& gates, const Deferral& deferral)
      : graph_(graph), goal_(goal), gates_(gates), d_(deferral), weight_(operand(deferral.norm, "weight")) {}

  // `uses`: of the graph as it is.
  bool run(const Uses& uses) {
    const std::optional<Maker> maker = maker_of(uses, d_.x);
    if (!maker || !maker_has_body(*maker)) return false;
    std::vector<Node> products;
    const TensorId y = operand(d_.norm, "y");
    if (!d_.stays) {
      if (!uses.all_read_as(y, "linear", "x")) return false;
      for (const Use& use : uses.readers(y)) products.push_back(graph_.nodes()[use.node]);
      if (!std::ranges::all_of(products, [&](const Node& product) { return product_has_body(product); })) return false;
    }
    replace_maker(*maker);
    if (!d_.stays) graph_.erase(d_.norm.name);
    for (const Node& product : products) replace_product(product);
    return true;
  }

 private:
  std::vector<int64_t> shape() const {
    const Tensor& x = graph_.tensor(d_.x);
    return {x.shape[0].size, x.shape[1].size};
  }
  // What tensor cores multiply with is of their other operand's dtype. A whole row of f16 has no room for what a norm is
  // yet to scale down.
  DType dtype() const { return graph_.tensor(weight_).dtype; }
  double factor() const { return dtype() == DType::f16 ? double{half_range::kNormed} : 1; }
  double eps() const { return d_.norm.attributes.at("eps") * factor() * factor(); }
  Tensor copy() const { return like(dtype(), {shape()[0], shape()[1]}); }
  Tensor squares() const { return like(DType::f32, {shape()[0], shape()[1] / d_.columns}); }
  NodeOptions maker_options() const {
    NodeOptions options = {.sizes = {{"L", d_.columns}}, .outputs = {{"y", d_.x}}, .dtypes = {{"copy", dtype()}}};
    if (factor() != 1) options.attributes["factor"] = factor();
    return options;
  }
  std::vector<TensorId> maker_inputs(const Maker& maker) const {
    if (!maker.product) return {operand(maker.last, "ids"), operand(maker.last, "weight"), weight_};
    return {operand(*maker.product, "x"), operand(*maker.product, "weight"), maker.residual, weight_};
  }
  static const char* maker_op(const Maker& maker) {
    return maker.product ? "linear_add_rmsnorm_parts" : "embedding_rmsnorm_parts";
  }
  bool maker_has_body(const Maker& maker) const {
    std::vector<Tensor> inputs;
    for (const TensorId input : maker_inputs(maker)) inputs.push_back(graph_.tensor(input));
    return goal_.has_body(graph_.registry(), maker_op(maker), inputs, maker_options());
  }
  // By itself, or with the other one of a gate.
  bool product_has_body(const Node& product) const {
    const Tensor& matrix = graph_.tensor(operand(product, "weight"));
    const TensorId y = operand(product, "y");
    const bool is_gated = gates_.has(y);
    const NodeOptions options = {.dtypes = {{"y", is_gated ? dtype() : graph_.tensor(y).dtype}}};
    return goal_.has_body(graph_.registry(), "linear_rmsnorm_scale", {copy(), squares(), matrix}, options) &&
           (!is_gated ||
            goal_.has_body(graph_.registry(), "gate_up_rmsnorm_scale", {copy(), squares(), matrix, matrix}, options));
  }

  void replace_maker(const Maker& maker) {
    std::string name = maker.last.name, before = maker.last.op->name;
    const std::vector<TensorId> inputs = maker_inputs(maker);
    if (maker.product) {
      name = maker.product->name;
      before = "linear, add";
      graph_.erase(name);
    }
    const size_t at = graph_.number_of(maker.last.name);
    graph_.erase(maker.last.name);
    const auto made = graph_.insert(at, maker_op(maker), name, inputs, maker_options());
    copy_ = made[1];
    squares_ = made[2];
    graph_.remember({"defer_norm", name, before, 2 * graph_.tensor(d_.x).bytes()});
  }

  void replace_product(const Node& product) {
    const size_t at = graph_.number_of(product.name);
    graph_.erase(product.name);
    graph_.insert(at, "linear_rmsnorm_scale", product.name, {copy_, squares_, operand(product, "weight")},
                  {.attributes = {{"eps", eps()}}, .outputs = {{"y", operand(product, "y")}}});
    graph_.remember({"defer_norm", product.name, "rmsnorm, linear", 0});
  }

  Graph& graph_;
  const Goal& goal_;
  const Gates& gates_;
  const Deferral& d_;
  const TensorId weight_;
  TensorId copy_ = -1, squares_ = -1;
};

// The head, whose product of few enough rows looks for the largest column by itself (fuse_argmax), and takes them as they are.
bool is_searched(const Graph& graph, const Uses& uses, TensorId normed) {
  if (graph.tensor(normed).shape[0].size > stream::kTileRows) return false;
  return std::ranges::any_of(uses.readers(normed), [&](const Use& use) {
    const Node& product = graph.nodes()[use.node];
    if (product.op->name != "linear") return false;
    const auto readers = uses.readers(operand(product, "y"));
    return std::ranges::any_of(readers, [&](const Use& of) { return graph.nodes()[of.node].op->name == "argmax"; });
  });
}

std::optional<Deferral> deferral_of(const Graph& graph, const Uses& uses, const Node& norm) {
  TensorId x = operand(norm, "x");
  const Node* gather = uses.maker(x, "gather_rows");
  if (gather) x = operand(*gather, "x");
  const Tensor& rows = graph.tensor(x);
  if (rows.dtype != DType::f32) return std::nullopt;
  const auto columns = squares_columns(rows.shape[0].size, rows.shape[1].size);
  if (!columns || graph.tensor(operand(norm, "weight")).shape.size() != 1) return std::nullopt;
  return Deferral{norm, x, *columns, gather != nullptr || is_searched(graph, uses, operand(norm, "y"))};
}

}  // namespace

std::optional<int64_t> squares_columns(int64_t rows, int64_t columns) {
  int64_t together = row_blocks::kColumns;  // those of a group of rows of weights, who writes them
  if (rows > stream::kMaxWideRows) return std::nullopt;
  if (rows <= stream::kMaxRows) {
    if (!ops::few_choices(rows, columns, false).registers) return std::nullopt;
    together = stream::group_rows(stream::slices(rows));
  }
  return columns % together == 0 ? std::optional(together) : std::nullopt;
}

int defer_norm(Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  std::vector<Node> norms;
  for (const Node& node : graph.nodes())
    if (node.op->name == "rmsnorm") norms.push_back(node);
  const Gates gates(graph);
  int times = 0;
  for (const Node& norm : norms) {
    const Uses uses(graph);
    if (const auto deferral = deferral_of(graph, uses, norm))
      times += NormDeferral(graph, goal, gates, *deferral).run(uses);
  }
  return times;
}

}  // namespace megalith::optimize
