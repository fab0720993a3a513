#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "megalith/base/json_quote.h"
#include "megalith/task/cost.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using graph::Graph;

namespace {

std::string megabytes(double bytes) { return fmt::format("{:.3f}", bytes / 1e6); }

OperatorCost total_of(const std::vector<OperatorCost>& costs) {
  OperatorCost total{.op = "total"};
  for (const OperatorCost& cost : costs) {
    total.nodes += cost.nodes;
    total.worker_ns += cost.worker_ns;
    total.cost += cost.cost;
  }
  return total;
}

}  // namespace

std::vector<OperatorCost> operator_costs(const Graph& graph, const graph::LoweredGraph& lowered,
                                         const std::string& target, int64_t rows) {
  task::Costs costs(graph, lowered, machine::worker_rates(target));
  std::map<std::string, OperatorCost> by_operator;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    OperatorCost& sum = by_operator[graph.nodes()[n].op->name];
    const auto node = static_cast<int>(n);
    const task::Cost cost = costs.of(node, {}, rows);
    sum.op = graph.nodes()[n].op->name;
    ++sum.nodes;
    sum.worker_ns += costs.ns(node, cost);
    sum.cost += cost;
  }
  std::vector<OperatorCost> result;
  for (auto& [op, cost] : by_operator) result.push_back(std::move(cost));
  std::ranges::stable_sort(result, std::greater{}, [](const OperatorCost& each) { return each.cost.bytes(); });
  return result;
}

std::string cost_table(const std::vector<OperatorCost>& costs, int64_t rows) {
  Table table({"operator", ">nodes", ">weights MB", ">states MB", ">activations MB", ">total MB", ">share", ">MFLOP",
               ">FLOP/byte", ">one worker"});
  const OperatorCost total = total_of(costs);
  auto add = [&](const OperatorCost& row) {
    const task::Cost& cost = row.cost;
    table.row({row.op, fmt::format("{}", row.nodes), megabytes(cost.weight_bytes), megabytes(cost.state_bytes),
               megabytes(cost.activation_bytes), megabytes(cost.bytes()),
               fmt::format("{:.1f} %", total.cost.bytes() > 0 ? 100 * cost.bytes() / total.cost.bytes() : 0),
               fmt::format("{:.3f}", cost.flops / 1e6),
               fmt::format("{:.2f}", cost.bytes() > 0 ? cost.flops / cost.bytes() : 0),
               format_ms(row.worker_ns / 1e6)});
  };
  for (const OperatorCost& cost : costs) add(cost);
  add(total);
  return fmt::format(
      "one iteration with {}; sequences at their longest, operations as the loop kernels have them, and what one "
      "worker "
      "would take\n\n{}",
      plural(rows, "token row"), table.text());
}

std::string cost_json(const std::vector<OperatorCost>& costs, int64_t rows) {
  std::vector<std::string> items;
  for (const OperatorCost& row : costs)
    items.push_back(fmt::format(R"({{"operator": {}, "nodes": {}, "weight_bytes": {:.0f}, "state_bytes": {:.0f}, )"
                                R"("activation_bytes": {:.0f}, "flops": {:.0f}, "worker_ns": {:.0f}}})",
                                json_quote(row.op), row.nodes, row.cost.weight_bytes, row.cost.state_bytes,
                                row.cost.activation_bytes, row.cost.flops, row.worker_ns));
  return fmt::format("{{\"rows\": {}, \"operators\": [\n {}]}}\n", rows, fmt::join(items, ",\n "));
}

}  // namespace megalith::tools
