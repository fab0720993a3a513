#include "megalith/graph/lower.h"

#include <algorithm>
#include <tuple>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/check.h"
#include "megalith/loop/in_place.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/text.h"

namespace megalith::graph {

namespace {

// The operator's loop-kernel text with the signature put in front: one grammar for both.
loop::Kernel parse_operator(const Operator& op, const Node& node) {
  std::string text = fmt::format("kernel {}\n", op.name);
  for (const auto& [size, value] : node.sizes)
    text += fmt::format("parameter {}{}\n", size, node.dynamic.contains(size) ? " dynamic" : "");
  for (const loop::Attribute& attribute : op.attributes)
    text += fmt::format("attribute {} = {}\n", attribute.name, attribute.value);
  for (const Operand& operand : op.operands) {
    const char* role = operand.role == loop::Role::input    ? "input"
                       : operand.role == loop::Role::output ? "output"
                                                            : "inout";
    text +=
        fmt::format("{} {}: {}[{}]\n", role, operand.name, dtype_name(operand.dtype), fmt::join(operand.shape, ", "));
  }
  try {
    return loop::parse_kernel(text + op.loops);
  } catch (const UserError& error) {
    throw UserError(fmt::format("[{}] loop kernel does not parse: {}", op.name, error.what()));
  }
}

std::string signature_of(const Graph& graph, size_t index, const Schedule& schedule) {
  const Node& node = graph.nodes()[index];
  std::string text = node.op->name;
  for (size_t i = 0; i < node.operands.size(); ++i)
    text += fmt::format(" {}:{} {}", node.op->operands[i].name, dtype_name(graph.tensor(node.operands[i]).dtype),
                        kLayoutNames[static_cast<size_t>(schedule.layout(node.operands[i]))]);
  for (const auto& [size, value] : node.sizes)
    text += fmt::format(" {}{}{}", size, node.dynamic.contains(size) ? "<=" : "=", value);
  for (const auto& [name, value] : node.attributes) text += fmt::format(" {}={}", name, value);
  for (const auto& [name, value] : schedule.nodes[index].stream) text += fmt::format(" stream.{}={}", name, value);
  // Operands that are one and the same tensor (or written twice) must not be assumed distinct by the generated code.
  for (size_t i = 0; i < node.operands.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (node.operands[i] == node.operands[j]) text += fmt::format(" alias:{}={}", i, j);
  return text;
}

}  // namespace

loop::Kernel node_kernel(const Graph& graph, const Node& node) {
  loop::Kernel kernel = parse_operator(*node.op, node);
  kernel.opaque = static_cast<bool>(node.op->reference);
  for (size_t i = 0; i < node.operands.size(); ++i)
    kernel.find_tensor(node.op->operands[i].name)->dtype = graph.tensor(node.operands[i]).dtype;
  for (loop::Attribute& attribute : kernel.attributes) attribute.value = node.attributes.at(attribute.name);
  for (const TaskAxis& axis : node.op->axes) kernel.tags[axis.iname] = loop::InameTag::task;
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  const loop::Binding binding{node.sizes, node.attributes};
  for (const SharedPair& pair : shared_pairs(node)) {
    const Operand &reader = node.op->operands[pair.reader], &writer = node.op->operands[pair.writer];
    const std::string& tensor = graph.tensor(node.operands[pair.writer]).name;
    MEGALITH_CHECK(
        reader.role == loop::Role::input,
        "[{}] \"{}\" and \"{}\" are one tensor, \"{}\", and the operator writes both: take a tensor for each",
        node.op->name, reader.name, writer.name, tensor);
    const std::string reason = kernel.opaque
                                   ? "what an opaque operator does in which order nobody knows"
                                   : loop::why_not_in_place(loop::bind(kernel, binding), reader.name, writer.name);
    MEGALITH_CHECK(
        reason.empty(),
        "[{}] \"{}\" is read and \"{}\" is written, and both are one tensor, \"{}\": {}; take another tensor "
        "for \"{}\"",
        node.op->name, reader.name, writer.name, tensor, reason, writer.name);
    loop::merge_operands(kernel, reader.name, writer.name);
  }
  if (!kernel.opaque) loop::check_kernel(loop::bind(kernel, binding));
  return kernel;
}

namespace {

LoweredKernel lower_node(const Graph& graph, size_t index, const Schedule& schedule) {
  const Node& node = graph.nodes()[index];
  LoweredKernel lowered;
  lowered.op = node.op;
  lowered.kernel = node_kernel(graph, node);
  for (const TaskAxis& axis : node.op->axes) lowered.tiled.push_back(axis.iname);
  lowered.binding.sizes = node.sizes;
  lowered.binding.attributes = node.attributes;
  lowered.body = schedule.body(index);
  lowered.stream = schedule.nodes[index].stream;
  for (const TensorId operand : node.operands) lowered.layouts.push_back(schedule.layout(operand));
  return lowered;
}

}  // namespace

BodyQuery body_query(const Graph& graph, const Node& node) {
  BodyQuery query{.dtypes = {}, .sizes = node.sizes};
  for (size_t i = 0; i < node.operands.size(); ++i)
    query.dtypes[node.op->operands[i].name] = graph.tensor(node.operands[i]).dtype;
  for (const TensorId operand : node.operands)
    query.int8 |= graph.tensor(operand).quant_columns > 0 && dtype_is_half(graph.tensor(operand).dtype);
  return query;
}

BodyQuery body_query(const Graph& graph, const Schedule& schedule, size_t node) {
  BodyQuery query = body_query(graph, graph.nodes()[node]);
  query.stream = schedule.nodes[node].stream;
  return query;
}

BodyQuery body_query(const LoweredKernel& lowered) {
  BodyQuery query{.dtypes = {},
                  .sizes = lowered.binding.sizes,
                  .int8 = std::ranges::count(lowered.layouts, Layout::int8) > 0,
                  .stream = lowered.stream};
  for (const loop::TensorArgument& tensor : lowered.kernel.tensors)
    if (tensor.role != loop::Role::temporary) query.dtypes[tensor.name] = *tensor.dtype;
  return query;
}

std::vector<SharedPair> shared_pairs(const Node& node) {
  std::vector<SharedPair> pairs;
  const auto is_written = [&](size_t i) { return node.op->operands[i].role != loop::Role::input; };
  for (size_t i = 0; i < node.operands.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (node.operands[i] == node.operands[j] && (is_written(i) || is_written(j)))
        pairs.push_back(is_written(i) ? SharedPair{j, i} : SharedPair{i, j});
  return pairs;
}

void check_shared_operands(const Graph& graph, const Node& node) {
  if (shared_pairs(node).empty()) return;
  try {
    loop::with_isl_limit(node.op->name, [&] { node_kernel(graph, node); });
  } catch (const UserError& error) { throw UserError(fmt::format("{} (node \"{}\")", error.what(), node.name)); }
}

std::vector<int> kernel_of_node(const Graph& graph, const Schedule& schedule) {
  // An operator that was declared anew has the name of the one before.
  std::map<std::tuple<const Operator*, const TunedBody*, std::string>, int> by_signature;
  std::vector<int> result;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const std::tuple key{node.op, schedule.body(n), signature_of(graph, n, schedule)};
    result.push_back(by_signature.emplace(key, static_cast<int>(by_signature.size())).first->second);
  }
  return result;
}

LoweredGraph lower(const Graph& graph, const Schedule& schedule) {
  LoweredGraph result{.kernels = {}, .kernel_of_node = kernel_of_node(graph, schedule), .schedule = schedule};
  std::map<std::string, int> used_names;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (result.kernel_of_node[n] < static_cast<int>(result.kernels.size())) continue;
    interruption_check();
    const Node& node = graph.nodes()[n];
    LoweredKernel lowered;
    try {
      loop::with_isl_limit(node.op->name, [&] { lowered = lower_node(graph, n, schedule); });
    } catch (const UserError& error) { throw UserError(fmt::format("{} (node \"{}\")", error.what(), node.name)); }
    lowered.signature = signature_of(graph, n, schedule);
    lowered.name = fmt::format("{}_{}", node.op->name, used_names[node.op->name]++);
    result.kernels.push_back(std::move(lowered));
  }
  return result;
}

}  // namespace megalith::graph
