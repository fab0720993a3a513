#include "megalith/optimize/uses.h"

#include <algorithm>

#include "megalith/base/error.h"

namespace megalith::optimize {

using graph::Node;
using graph::TensorId;

Uses::Uses(const graph::Graph& graph)
    : graph_(graph), writers_(table_of(graph, loop::Role::input)), readers_(table_of(graph, loop::Role::output)) {}

Uses::Table Uses::table_of(const graph::Graph& graph, loop::Role but) {
  Table table{std::vector<size_t>(graph.tensors().size() + 1), {}};
  const auto for_each = [&](const auto& see) {
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      for (size_t i = 0; i < node.operands.size(); ++i)
        if (node.op->operands[i].role != but) see(static_cast<size_t>(node.operands[i]), Use{n, i});
    }
  };
  for_each([&](size_t tensor, Use) { ++table.begin[tensor + 1]; });
  for (size_t t = 1; t < table.begin.size(); ++t) table.begin[t] += table.begin[t - 1];
  table.uses.resize(table.begin.back());
  std::vector<size_t> next = table.begin;
  for_each([&](size_t tensor, Use use) { table.uses[next[tensor]++] = use; });
  return table;
}

const Node* Uses::maker(TensorId tensor) const {
  const std::span<const Use> writers = writers_.of(tensor);
  if (graph_.tensor(tensor).kind != graph::TensorKind::activation || writers.size() != 1) return nullptr;
  const Node& node = graph_.nodes()[writers[0].node];
  return node.op->operands[writers[0].operand].role == loop::Role::output ? &node : nullptr;
}

const Node* Uses::maker(TensorId tensor, const std::string& op) const {
  const Node* node = maker(tensor);
  return node && node->op->name == op ? node : nullptr;
}

const Node* Uses::only_maker(TensorId tensor) const { return readers(tensor).size() == 1 ? maker(tensor) : nullptr; }

const Node* Uses::only_maker(TensorId tensor, const std::string& op) const {
  return readers(tensor).size() == 1 ? maker(tensor, op) : nullptr;
}

bool Uses::all_read_as(TensorId tensor, const std::string& op, const std::string& operand) const {
  const std::span<const Use> uses = readers(tensor);
  return !uses.empty() && std::ranges::all_of(uses, [&](const Use& use) {
    const Node& node = graph_.nodes()[use.node];
    return node.op->name == op && node.op->operands[use.operand].name == operand;
  });
}

size_t operand_number(const Node& node, const std::string& name) {
  const auto found = std::ranges::find(node.op->operands, name, &graph::Operand::name);
  MEGALITH_ASSERT(found != node.op->operands.end(), "[{}] has no operand {}", node.op->name, name);
  return static_cast<size_t>(found - node.op->operands.begin());
}

TensorId operand(const Node& node, const std::string& name) { return node.operands[operand_number(node, name)]; }

std::string joined_name(const std::vector<std::string>& names) {
  size_t shortest = names[0].size();
  for (const std::string& name : names) shortest = std::min(shortest, name.size());
  const auto in_common = [&](const auto& letter, size_t most) {
    size_t count = 0;
    while (count < most && std::ranges::all_of(names, [&](const std::string& name) {
             return letter(name, count) == letter(names[0], count);
           }))
      ++count;
    return count;
  };
  const size_t before = in_common([](const std::string&name, size_t i) { return name[i]; }, shortest),
               behind = in_common([](const std::string&name, size_t i) { return name[name.size() - 1 - i]; },
                                  shortest - before);
  std::string joined = names[0].substr(0, before);
  for (const std::string& name : names) joined += name.substr(before, name.size() - before - behind);
  return joined + names[0].substr(names[0].size() - behind);
}

}  // namespace megalith::optimize
