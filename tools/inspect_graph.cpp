#include <fmt/format.h>

#include <map>

#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using graph::Graph;
using graph::Node;
using graph::Tensor;
using graph::TensorKind;

namespace {

std::string type_of(const Tensor& tensor) {
  std::vector<std::string> dims;
  for (const graph::Dim& dim : tensor.shape)
    dims.push_back(dim.dynamic.empty() ? fmt::format("{}", dim.size) : fmt::format("{}<={}", dim.dynamic, dim.size));
  return fmt::format("{}[{}]", dtype_name(tensor.dtype), fmt::join(dims, ", "));
}

const char* kind_name(TensorKind kind) {
  switch (kind) {
    case TensorKind::constant: return "constant";
    case TensorKind::state: return "state";
    case TensorKind::activation: return "activation";
  }
  return "?";
}

bool is_read(const Node& node, size_t operand) { return node.op->operands[operand].role != loop::Role::output; }
bool is_written(const Node& node, size_t operand) { return node.op->operands[operand].role != loop::Role::input; }

// Outputs are mostly called after their node; then only what is new is said.
std::string name_within(const Node& node, const Tensor& tensor) {
  if (tensor.name == node.name) return "";
  const bool below = tensor.name.starts_with(node.name + ".");
  return (below ? tensor.name.substr(node.name.size()) : tensor.name) + ": ";
}

std::string totals(const Graph& graph) {
  std::map<TensorKind, std::pair<int64_t, int64_t>> kinds;  // count, bytes
  for (const Tensor& tensor : graph.tensors()) {
    ++kinds[tensor.kind].first;
    kinds[tensor.kind].second += tensor.bytes();
  }
  std::string text = fmt::format("{}: {}", graph.name(), plural(static_cast<int64_t>(graph.nodes().size()), "node"));
  for (const auto& [kind, sum] : kinds)
    text += fmt::format(", {} ({})", plural(sum.first, kind_name(kind)), format_bytes(sum.second));
  return text + "\n";
}

}  // namespace

std::string graph_table(const Graph& graph) {
  std::string text = totals(graph);
  for (const auto& [name, where] : graph.dynamic_sizes())
    text += fmt::format("{} is read from {}[{}]\n", name, graph.tensor(where.tensor).name, where.index);
  if (graph.gate_node())
    text += fmt::format("{} ends an iteration, and the loop once {} is set\n",
                        graph.nodes()[static_cast<size_t>(*graph.gate_node())].name,
                        graph.tensor(*graph.stop_tensor()).name);
  Table table({">#", "node", "operator", "writes", "reads"});
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    std::vector<std::string> reads, writes;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Tensor& tensor = graph.tensor(node.operands[i]);
      if (is_written(node, i))
        writes.push_back(name_within(node, tensor) + type_of(tensor));
      else
        reads.push_back(tensor.name);
    }
    table.row({fmt::format("{}", n), node.name, node.op->name, fmt::format("{}", fmt::join(writes, ", ")),
               fmt::format("{}", fmt::join(reads, ", "))});
  }
  return text + "\n" + table.text();
}

std::string graph_json(const Graph& graph) {
  std::vector<std::string> tensors, nodes;
  for (const Tensor& tensor : graph.tensors()) {
    std::vector<std::string> shape;
    for (const graph::Dim& dim : tensor.shape)
      shape.push_back(dim.dynamic.empty()
                          ? fmt::format("{}", dim.size)
                          : fmt::format(R"({{"dynamic": {}, "largest": {}}})", json_quote(dim.dynamic), dim.size));
    tensors.push_back(fmt::format(R"({{"name": {}, "kind": "{}", "dtype": "{}", "shape": [{}]}})",
                                  json_quote(tensor.name), kind_name(tensor.kind), dtype_name(tensor.dtype),
                                  fmt::join(shape, ", ")));
  }
  for (const Node& node : graph.nodes()) {
    std::vector<std::string> operands, attributes;
    for (size_t i = 0; i < node.operands.size(); ++i)
      operands.push_back(fmt::format("{}: {}", json_quote(node.op->operands[i].name),
                                     json_quote(graph.tensor(node.operands[i]).name)));
    for (const auto& [name, value] : node.attributes)
      attributes.push_back(fmt::format("{}: {}", json_quote(name), value));
    nodes.push_back(fmt::format(R"({{"name": {}, "operator": {}, "operands": {{{}}}, "attributes": {{{}}}}})",
                                json_quote(node.name), json_quote(node.op->name), fmt::join(operands, ", "),
                                fmt::join(attributes, ", ")));
  }
  return fmt::format("{{\"name\": {},\n\"tensors\": [\n {}],\n\"nodes\": [\n {}]}}\n", json_quote(graph.name()),
                     fmt::join(tensors, ",\n "), fmt::join(nodes, ",\n "));
}

std::string graph_dot(const Graph& graph) {
  std::string text = fmt::format("digraph {} {{\n  node [shape=box, fontname=\"sans\"];\n", json_quote(graph.name()));
  std::map<graph::TensorId, size_t> written_by;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    text += fmt::format("  n{} [label={}];\n", n, json_quote(node.name + "\n" + node.op->name));
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const auto writer = written_by.find(node.operands[i]);
      if (is_read(node, i) && writer != written_by.end())
        text += fmt::format("  n{} -> n{} [label={}];\n", writer->second, n,
                            json_quote(type_of(graph.tensor(node.operands[i]))));
    }
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (is_written(node, i)) written_by[node.operands[i]] = n;
  }
  return text + "}\n";
}

}  // namespace megalith::tools
