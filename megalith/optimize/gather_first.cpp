#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "megalith/graph/compose.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/loop/infer.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeOptions;
using graph::Operand;
using graph::Operator;
using graph::TensorId;
using loop::Expr;

bool is_iname(const Expr& expr, const std::string& iname) {
  return expr.kind == Expr::Kind::name && expr.name == iname;
}

// Whether `row` is nothing but the first subscript of what has a row for each of it.
bool stays_in_row(const Expr& expr, const std::string& row, const std::set<std::string>& with_rows) {
  if (is_iname(expr, row)) return false;
  auto begin = expr.args.begin();
  if (expr.kind == Expr::Kind::subscript && with_rows.contains(expr.name)) {
    if (expr.args.empty() || !is_iname(expr.args[0], row)) return false;
    ++begin;
  }
  return std::all_of(begin, expr.args.end(), [&](const Expr& arg) { return stays_in_row(arg, row, with_rows); });
}

/// The inputs that have a row for each row of the one output, where row t of the output is made of row t of those and of what
/// has no such rows; nothing where it is otherwise.
std::optional<std::set<size_t>> row_inputs(const Operator& op) {
  std::optional<size_t> output;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].role == loop::Role::input) continue;
    if (op.operands[i].role == loop::Role::inout || output) return std::nullopt;
    output = i;
  }
  if (!output || op.reference || op.operands[*output].shape.size() != 2) return std::nullopt;
  const std::string rows = op.operands[*output].shape[0];
  std::set<size_t> inputs;
  std::set<std::string> with_rows = {op.operands[*output].name};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Operand& operand = op.operands[i];
    if (i == *output || operand.shape.empty() || operand.shape[0] != rows) continue;
    inputs.insert(i);
    with_rows.insert(operand.name);
  }
  const loop::Kernel kernel = graph::generic_kernel(op);
  if (kernel.instructions.empty() || kernel.instructions.back().target.args.empty()) return std::nullopt;
  const Expr& row = kernel.instructions.back().target.args[0];
  if (row.kind != Expr::Kind::name || kernel.is_parameter(row.name)) return std::nullopt;
  for (const loop::Instruction& instruction : kernel.instructions) with_rows.insert(instruction.target.name);
  for (const loop::Instruction& instruction : kernel.instructions)
    if (!stays_in_row(instruction.target, row.name, with_rows) ||
        !stays_in_row(instruction.value, row.name, with_rows) || loop::mentions(instruction.value, rows) ||
        instruction.condition)
      return std::nullopt;
  return inputs;
}

bool is_worth(const Goal& goal, int64_t rows, int64_t picked) {
  // Of so many rows a product takes the time of its weights on a GPU, however few are left; and on a CPU of a few.
  constexpr int64_t kFreeRowsOfGpu = 2 * stream::kWideRows, kFreeRowsOfCpu = 16;
  return goal.is_gpu() ? rows > kFreeRowsOfGpu && 2 * picked <= rows : rows > kFreeRowsOfCpu && 4 * picked <= rows;
}

class EarlyGather {
 public:
  EarlyGather(Graph& graph, const Node& gather)
      : graph_(graph), gather_(gather), rows_(operand(gather, "rows")), result_(operand(gather, "y")) {}

  bool run() {
    find();
    if (moved_.empty() || !rows_last()) return false;
    const TensorId x = operand(gather_, "x");
    graph_.erase(gather_.name);
    std::map<TensorId, TensorId> picked;
    for (const Node& node : moved_) move(node, x, picked);
    graph_.remember({"gather_first", gather_.name, "gather_rows", 0});
    return true;
  }

 private:
  // Nodes whose rows nobody needs but those that are picked; in order.
  void find() {
    if (graph_.tensor(operand(gather_, "x")).dtype != graph_.tensor(result_).dtype) return;
    const Uses uses(graph_);
    std::set<std::string> names = {gather_.name};
    for (size_t at = graph_.number_of(gather_.name); at-- > 0;) {
      const Node& node = graph_.nodes()[at];
      if (!node.tile.empty() || !node.pieces.empty() || !node.op->extra_sizes.empty()) continue;
      const size_t output = output_of(node);
      if (output == node.operands.size() || !uses.maker(node.operands[output])) continue;
      const auto readers = uses.readers(node.operands[output]);
      const auto picks = [&](const Use& use) {
        const Node& reader = graph_.nodes()[use.node];
        if (reader.name == gather_.name) return reader.op->operands[use.operand].name == "x";
        return names.contains(reader.name) && rows_of(reader)->contains(use.operand);
      };
      if (readers.empty() || !std::ranges::all_of(readers, picks)) continue;
      // Rows are picked of matrices of floats that are written once, if at all, so whoever reads them sees the same.
      const auto can_pick = [&](size_t i) {
        const TensorId id = node.operands[i];
        const graph::Tensor& input = graph_.tensor(id);
        return input.shape.size() == 2 && dtype_is_float(input.dtype) &&
               (input.kind == graph::TensorKind::constant || uses.maker(id));
      };
      const auto& rows = rows_of(node);
      if (!rows || rows->empty() || !std::ranges::all_of(*rows, can_pick)) continue;
      names.insert(node.name);
      moved_.insert(moved_.begin(), node);
    }
  }
  const std::optional<std::set<size_t>>& rows_of(const Node& node) {
    const auto [known, is_new] = known_.try_emplace(node.op);
    if (is_new) known->second = row_inputs(*node.op);
    return known->second;
  }
  static size_t output_of(const Node& node) {
    const auto output = std::ranges::find(node.op->operands, loop::Role::output, &Operand::role);
    return static_cast<size_t>(output - node.op->operands.begin());
  }

  // Whether the rows to pick, and how many there are, are the same in front of the first moved node as at the gather.
  bool rows_last() const {
    std::set<TensorId> read = {rows_};
    for (const TensorId tensor : {rows_, operand(gather_, "x")})
      for (const graph::Dim& dim : graph_.tensor(tensor).shape)
        if (!dim.dynamic.empty()) read.insert(graph_.dynamic_sizes().at(dim.dynamic).tensor);
    for (size_t at = graph_.number_of(moved_[0].name); at < graph_.number_of(gather_.name); ++at) {
      const Node& node = graph_.nodes()[at];
      for (size_t i = 0; i < node.operands.size(); ++i)
        if (node.op->operands[i].role != loop::Role::input && read.contains(node.operands[i])) return false;
    }
    return true;
  }

  // In front of all that moves, so that nodes stay neighbours; behind what makes the rows.
  TensorId pick(TensorId all) {
    const Node* const maker = Uses(graph_).maker(all);
    const size_t first = graph_.number_of(moved_[0].name),
                 at = maker ? std::max(first, graph_.number_of(maker->name) + 1) : first;
    return graph_.insert(at, "gather_rows", fmt::format("{}.{}", gather_.name, graph_.tensor(all).name), {all, rows_},
                         {.dtypes = {{"y", graph_.tensor(all).dtype}}})[0];
  }

  void move(const Node& node, TensorId x, std::map<TensorId, TensorId>& picked) {
    std::vector<TensorId> inputs;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const TensorId input = node.operands[i];
      if (i == output_of(node)) continue;
      if (rows_of(node)->contains(i) && !picked.contains(input)) picked[input] = pick(input);
      inputs.push_back(rows_of(node)->contains(i) ? picked.at(input) : input);
    }
    const TensorId made = node.operands[output_of(node)];
    const std::string& output = node.op->operands[output_of(node)].name;
    // What it made before has the name until nobody uses it.
    const graph::Tensor all = graph_.tensor(made);
    const TensorId to =
        made == x ? result_
                  : graph_.activation(all.name + ".picked", all.dtype, {graph_.tensor(result_).shape[0], all.shape[1]});
    const NodeOptions options = {.attributes = node.attributes, .outputs = {{output, to}}};
    const size_t at = graph_.number_of(node.name);
    graph_.erase(node.name);
    picked[made] = graph_.insert(at, node.op->name, node.name, inputs, options)[0];
  }

  Graph& graph_;
  const Node gather_;
  const TensorId rows_, result_;
  std::vector<Node> moved_;
  std::map<const Operator*, std::optional<std::set<size_t>>> known_;  // row_inputs()
};

}  // namespace

int gather_first(Graph& graph, const Goal& goal) {
  std::vector<Node> gathers;
  for (const Node& node : graph.nodes())
    if (node.op->name == "gather_rows" && is_worth(goal, node.sizes.at("T"), node.sizes.at("R")))
      gathers.push_back(node);
  int times = 0;
  for (const Node& gather : gathers) times += EarlyGather(graph, gather).run();
  return times;
}

}  // namespace megalith::optimize
