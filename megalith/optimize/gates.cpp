#include "megalith/optimize/gates.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "megalith/graph/compose.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;
using graph::Operator;
using graph::TensorId;
using loop::Expr;

namespace {

// The loops of rows and of columns, where an operator makes every element of its one output of those of its inputs at the
// same place or in the same column, and of nothing else but attributes.
using Loops = std::array<std::string, 2>;

bool same_places(const std::vector<Expr>& args, std::span<const Expr> place) {
  return std::ranges::equal(args, place, [](const Expr& a, const Expr& b) { return same_expression(a, b); });
}

bool reads_only_at(const loop::Kernel& kernel, const Expr& expr, const Expr& place) {
  switch (expr.kind) {
    case Expr::Kind::number: return true;
    case Expr::Kind::name: return kernel.is_attribute(expr.name);
    case Expr::Kind::reduce: return false;
    case Expr::Kind::subscript:
      return same_places(expr.args, place.args) || same_places(expr.args, std::span(place.args).last(1));
    case Expr::Kind::call: break;
  }
  const bool may_fault = expr.name == "//" || expr.name == "mod";
  return !may_fault &&
         std::ranges::all_of(expr.args, [&](const Expr& arg) { return reads_only_at(kernel, arg, place); });
}

bool is_of_columns(const graph::Operand& operand) { return operand.shape.size() == 1; }

std::optional<Loops> elementwise_loops(const Operator& op) {
  const auto is_output = [](const graph::Operand& operand) { return operand.role == loop::Role::output; };
  if (op.reference || op.epilogue || !op.extra_sizes.empty() || std::ranges::count_if(op.operands, is_output) != 1)
    return std::nullopt;
  const std::vector<std::string>& shape = std::ranges::find_if(op.operands, is_output)->shape;
  if (shape.size() != 2) return std::nullopt;
  for (const graph::Operand& operand : op.operands) {
    const bool is_row = is_of_columns(operand) && operand.shape[0] == shape[1] && operand.role == loop::Role::input;
    if (operand.role == loop::Role::inout || (operand.shape != shape && !is_row)) return std::nullopt;
  }
  const loop::Kernel kernel = graph::generic_kernel(op);
  const Expr& place = kernel.instructions.back().target;
  if (place.args.size() != 2 || kernel.inames().size() != 2) return std::nullopt;
  for (const Expr& arg : place.args)
    if (arg.kind != Expr::Kind::name || kernel.is_parameter(arg.name)) return std::nullopt;
  for (const loop::Instruction& instruction : kernel.instructions)
    if (instruction.condition || !same_places(instruction.target.args, place.args) ||
        !reads_only_at(kernel, instruction.value, place))
      return std::nullopt;
  return Loops{place.args[0].name, place.args[1].name};
}

TensorId result_of(const Node& node) {
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (node.op->operands[i].role != loop::Role::input) return node.operands[i];
  return -1;
}

// From a result back to the values that it is made of.
class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph), uses_(graph) {}

  std::optional<FoundGate> at(size_t root) {
    if (!loops_of(root)) return std::nullopt;
    // Nodes in front of it, the nearest first, that only those found so far read.
    std::vector<size_t> nodes = {root};
    std::vector<TensorId> values;
    for (size_t taken = 0; taken < nodes.size(); ++taken) take(nodes[taken], nodes, values);
    if (values.size() != 2 || !go_together(nodes, values)) return std::nullopt;
    std::ranges::sort(nodes);
    FoundGate found{.nodes = {},
                    .result = result_of(graph_.nodes()[root]),
                    .values = {values[0], values[1]},
                    .besides = {},
                    .gate = {},
                    .attributes = {}};
    write(nodes, found);
    return found;
  }

 private:
  // What is read by columns is constant.
  const Loops* loops_of(size_t node) {
    const Operator* op = graph_.nodes()[node].op;
    const auto [known, is_new] = known_.try_emplace(op);
    if (is_new) known->second = elementwise_loops(*op);
    if (!known->second) return nullptr;
    for (size_t i = 0; i < op->operands.size(); ++i)
      if (is_of_columns(op->operands[i]) &&
          graph_.tensor(graph_.nodes()[node].operands[i]).kind != graph::TensorKind::constant)
        return nullptr;
    return &*known->second;
  }

  void take(size_t node, std::vector<size_t>& nodes, std::vector<TensorId>& values) {
    const Node& taken = graph_.nodes()[node];
    for (size_t i = 0; i < taken.operands.size(); ++i) {
      if (taken.op->operands[i].role != loop::Role::input || is_of_columns(taken.op->operands[i])) continue;
      const TensorId value = taken.operands[i];
      const Node* maker = uses_.maker(value);
      const size_t number = maker ? static_cast<size_t>(maker - graph_.nodes().data()) : 0;
      if (maker && loops_of(number) && is_read_in(value, nodes)) {
        if (std::ranges::find(nodes, number) == nodes.end()) nodes.push_back(number);
      } else if (std::ranges::find(values, value) == values.end()) {
        values.push_back(value);
      }
    }
  }
  bool is_read_in(TensorId value, const std::vector<size_t>& nodes) const {
    return std::ranges::all_of(uses_.readers(value),
                               [&](const Use& use) { return std::ranges::find(nodes, use.node) != nodes.end(); });
  }

  // Made by two products of the same rows, and read by nobody else.
  bool go_together(const std::vector<size_t>& nodes, const std::vector<TensorId>& values) const {
    const Node *first = uses_.maker(values[0]), *second = uses_.maker(values[1]);
    return first && second && first->op->name == second->op->name && first->op->find("x") &&
           operand(*first, "x") == operand(*second, "x") && is_read_in(values[0], nodes) &&
           is_read_in(values[1], nodes);
  }

  void write(const std::vector<size_t>& nodes, FoundGate& found) {
    std::map<TensorId, std::string> names = {{found.values[0], "a"}, {found.values[1], "b"}};
    for (const size_t number : nodes) {
      const Node& node = graph_.nodes()[number];
      found.nodes.push_back(node.name);
      std::vector<std::string> read, behind;
      for (size_t i = 0; i < node.operands.size(); ++i) {
        const graph::Operand& operand = node.op->operands[i];
        if (operand.role != loop::Role::input) continue;
        if (is_of_columns(operand) && !names.contains(node.operands[i])) {
          const std::string name = fmt::format("gate_{}_{}", names.size(), operand.name);
          names[node.operands[i]] = name;
          found.besides.push_back(node.operands[i]);
          found.gate.operands.push_back(
              {.name = name, .role = loop::Role::input, .shape = {"N"}, .dtype = operand.dtype});
        }
        read.push_back(names.at(node.operands[i]));
      }
      const Loops& loops = *loops_of(number);
      for (const auto& [theirs, ours] : {std::pair{loops[0], "t"}, {loops[1], "n"}})
        if (theirs != ours) behind.push_back(fmt::format("{} as {}", theirs, ours));
      for (const loop::Attribute& attribute : node.op->attributes) {
        const std::string name = fmt::format("gate_{}_{}", found.gate.attributes.size() + 1, attribute.name);
        behind.push_back(fmt::format("{} = {}", attribute.name, name));
        found.gate.attributes.push_back({name, attribute.value});
        found.attributes[name] = node.attributes.at(attribute.name);
      }
      const std::string result = number == nodes.back() ? "y" : fmt::format("gate_{}", names.size());
      found.gate.program += fmt::format("{} = {}({}{}{})\n", result, node.op->name, fmt::join(read, ", "),
                                        behind.empty() ? "" : "; ", fmt::join(behind, ", "));
      found.gate.name += (found.gate.name.empty() ? "" : "_") + node.op->name;
      names.emplace(result_of(node), result);
    }
  }

  const Graph& graph_;
  const Uses uses_;
  std::map<const Operator*, std::optional<Loops>> known_;
};

}  // namespace

Gates::Gates(const Graph& graph) {
  Search search(graph);
  for (size_t node = 0; node < graph.nodes().size(); ++node)
    if (auto gate = search.at(node)) {
      values_.insert(gate->values.begin(), gate->values.end());
      found_.push_back(std::move(*gate));
    }
}

}  // namespace megalith::optimize
