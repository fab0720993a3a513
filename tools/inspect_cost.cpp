#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "megalith/base/json_quote.h"
#include "megalith/loop/count.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using graph::Graph;
using graph::LoweredKernel;
using graph::Node;
using graph::TensorKind;

namespace {

OperatorCost node_cost(const Graph& graph, const Node& node, const LoweredKernel& lowered, int64_t rows) {
  loop::Binding binding = lowered.binding;
  for (const auto& [size, dynamic] : node.dynamic) binding.sizes[size] = std::min(rows, binding.sizes[size]);
  OperatorCost cost{.op = node.op->name, .nodes = 1};
  cost.flops = static_cast<double>(loop::count_ops(lowered.kernel, binding).flops());
  const std::map<std::string, loop::AccessCount> accesses = loop::count_accesses(lowered.kernel, binding);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const auto found = accesses.find(node.op->operands[i].name);
    if (found == accesses.end()) continue;
    const auto bytes = static_cast<double>(found->second.moved_bytes());
    switch (graph.tensor(node.operands[i]).kind) {
      case TensorKind::constant: cost.weight_bytes += bytes; break;
      case TensorKind::state: cost.state_bytes += bytes; break;
      case TensorKind::activation: cost.activation_bytes += bytes; break;
    }
  }
  return cost;
}

std::string megabytes(double bytes) { return fmt::format("{:.3f}", bytes / 1e6); }

OperatorCost total_of(const std::vector<OperatorCost>& costs) {
  OperatorCost total{.op = "total"};
  for (const OperatorCost& cost : costs) {
    total.nodes += cost.nodes;
    total.weight_bytes += cost.weight_bytes;
    total.state_bytes += cost.state_bytes;
    total.activation_bytes += cost.activation_bytes;
    total.flops += cost.flops;
  }
  return total;
}

}  // namespace

std::vector<OperatorCost> operator_costs(const Graph& graph, const graph::LoweredGraph& lowered, int64_t rows) {
  // Nodes of one kernel cost the same, but for which of their operands are constants: that is by operand, as a rule.
  std::map<std::pair<int, std::vector<TensorKind>>, OperatorCost> known;
  std::map<std::string, OperatorCost> by_operator;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const int kernel = lowered.kernel_of_node[n];
    std::vector<TensorKind> kinds;
    for (graph::TensorId operand : node.operands) kinds.push_back(graph.tensor(operand).kind);
    auto [at, fresh] = known.try_emplace({kernel, kinds});
    if (fresh) at->second = node_cost(graph, node, lowered.kernels[static_cast<size_t>(kernel)], rows);
    OperatorCost& sum = by_operator[node.op->name];
    sum = total_of({sum, at->second});
    sum.op = node.op->name;
  }
  std::vector<OperatorCost> costs;
  for (auto& [op, cost] : by_operator) costs.push_back(std::move(cost));
  std::stable_sort(costs.begin(), costs.end(),
                   [](const OperatorCost& a, const OperatorCost& b) { return a.bytes() > b.bytes(); });
  return costs;
}

std::string cost_table(const std::vector<OperatorCost>& costs, int64_t rows) {
  Table table({"operator", ">nodes", ">weights MB", ">states MB", ">activations MB", ">total MB", ">share", ">MFLOP",
               ">FLOP/byte"});
  const OperatorCost total = total_of(costs);
  auto add = [&](const OperatorCost& cost) {
    table.row({cost.op, fmt::format("{}", cost.nodes), megabytes(cost.weight_bytes), megabytes(cost.state_bytes),
               megabytes(cost.activation_bytes), megabytes(cost.bytes()),
               fmt::format("{:.1f} %", total.bytes() > 0 ? 100 * cost.bytes() / total.bytes() : 0),
               fmt::format("{:.3f}", cost.flops / 1e6),
               fmt::format("{:.2f}", cost.bytes() > 0 ? cost.flops / cost.bytes() : 0)});
  };
  for (const OperatorCost& cost : costs) add(cost);
  add(total);
  return fmt::format(
      "one iteration with {}; sequences at their longest, operations as the loop kernels have them\n\n{}",
      plural(rows, "token row"), table.text());
}

std::string cost_json(const std::vector<OperatorCost>& costs, int64_t rows) {
  std::vector<std::string> items;
  for (const OperatorCost& cost : costs)
    items.push_back(fmt::format(R"({{"operator": {}, "nodes": {}, "weight_bytes": {:.0f}, "state_bytes": {:.0f}, )"
                                R"("activation_bytes": {:.0f}, "flops": {:.0f}}})",
                                json_quote(cost.op), cost.nodes, cost.weight_bytes, cost.state_bytes,
                                cost.activation_bytes, cost.flops));
  return fmt::format("{{\"rows\": {}, \"operators\": [\n {}]}}\n", rows, fmt::join(items, ",\n "));
}

}  // namespace megalith::tools
