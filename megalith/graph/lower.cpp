#include "megalith/graph/lower.h"

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/kernels/page_pairs.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_limits.h"
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

// Per tensor, how it lies in memory where that is not row by row.
struct Forms {
  std::vector<bool> exchanged, packed, blocked, paired;

  Forms(const Graph& graph, const std::string& target)
      : exchanged(exchanged_tensors(graph, target)),
        packed(packed_tensors(graph, target)),
        blocked(blocked_tensors(graph, target)),
        paired(paired_tensors(graph, target)) {}
  const char* name(TensorId tensor) const {
    const auto t = static_cast<size_t>(tensor);
    return exchanged[t] ? " words" : packed[t] ? " panels" : blocked[t] ? " blocks" : paired[t] ? " pairs" : "";
  }
};

std::string signature_of(const Graph& graph, const Node& node, const Forms& forms) {
  std::string text = node.op->name;
  for (size_t i = 0; i < node.operands.size(); ++i)
    text += fmt::format(" {}:{}{}", node.op->operands[i].name, dtype_name(graph.tensor(node.operands[i]).dtype),
                        forms.name(node.operands[i]));
  for (const auto& [size, value] : node.sizes)
    text += fmt::format(" {}{}{}", size, node.dynamic.contains(size) ? "<=" : "=", value);
  for (const auto& [name, value] : node.attributes) text += fmt::format(" {}={}", name, value);
  // Operands that are one and the same tensor (or written twice) must not be assumed distinct by the generated code.
  for (size_t i = 0; i < node.operands.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (node.operands[i] == node.operands[j]) text += fmt::format(" alias:{}={}", i, j);
  return text;
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// A body that knows nothing of panels cannot read a tensor that lies in them.
bool reads_as_they_lie(const TunedBody& body, const Node& node, const std::vector<bool>& packed) {
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (packed[static_cast<size_t>(node.operands[i])] &&
        !(body.packed && is_among(body.packed->operands, node.op->operands[i].name)))
      return false;
  return true;
}

// Operands of a node that are one tensor, at least one of which is written: the one that is only read, and the other.
struct SharedPair {
  size_t reader, writer;
};
std::vector<SharedPair> shared_pairs(const Node& node) {
  std::vector<SharedPair> pairs;
  const auto is_written = [&](size_t i) { return node.op->operands[i].role != loop::Role::input; };
  for (size_t i = 0; i < node.operands.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (node.operands[i] == node.operands[j] && (is_written(i) || is_written(j)))
        pairs.push_back(is_written(i) ? SharedPair{j, i} : SharedPair{i, j});
  return pairs;
}

// The operator's loop kernel for this node. Operands that are one tensor become one.
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

LoweredKernel lower_node(const Graph& graph, const Node& node, const std::string& target, const Forms& forms) {
  LoweredKernel lowered;
  lowered.op = node.op;
  lowered.kernel = node_kernel(graph, node);
  for (const TaskAxis& axis : node.op->axes) lowered.tiled.push_back(axis.iname);
  lowered.binding.sizes = node.sizes;
  lowered.binding.attributes = node.attributes;
  lowered.body = tuned_body(graph, node, target);
  if (lowered.body && !reads_as_they_lie(*lowered.body, node, forms.packed)) lowered.body = nullptr;
  for (TensorId operand : node.operands) {
    lowered.exchanged.push_back(forms.exchanged[static_cast<size_t>(operand)]);
    lowered.packed.push_back(forms.packed[static_cast<size_t>(operand)]);
    lowered.blocked.push_back(forms.blocked[static_cast<size_t>(operand)]);
    lowered.paired.push_back(forms.paired[static_cast<size_t>(operand)]);
  }
  return lowered;
}

}  // namespace

BodyQuery body_query(const Graph& graph, const Node& node) {
  BodyQuery query{{}, node.sizes};
  for (size_t i = 0; i < node.operands.size(); ++i)
    query.dtypes[node.op->operands[i].name] = graph.tensor(node.operands[i]).dtype;
  return query;
}

namespace {
// Streams and panels are laid out once, before anything runs; and a norm's weight is loaded beside them past all order
// (kernels/cuda/activations.cuh).
bool are_constant(const Graph& graph, const Node& node, const std::vector<std::string>& operands) {
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (is_among(operands, node.op->operands[i].name) && graph.tensor(node.operands[i]).kind != TensorKind::constant)
      return false;
  return true;
}
}  // namespace

void check_shared_operands(const Graph& graph, const Node& node) {
  if (shared_pairs(node).empty()) return;
  try {
    loop::with_isl_limit(node.op->name, [&] { node_kernel(graph, node); });
  } catch (const UserError& error) { throw UserError(fmt::format("{} (node \"{}\")", error.what(), node.name)); }
}

const TunedBody* tuned_body(const Graph& graph, const Node& node, const std::string& target) {
  if (node.op->bodies.empty()) return nullptr;
  const BodyQuery query = body_query(graph, node);
  const std::vector<SharedPair> shared = shared_pairs(node);
  // A body has an order of its own, which only its author knows.
  const auto takes_shared = [&](const TunedBody& body) {
    return std::ranges::all_of(
        shared, [&](const SharedPair& pair) { return is_among(body.in_place, node.op->operands[pair.reader].name); });
  };
  for (const TunedBody& body : node.op->bodies)
    if (body.target == target && (!body.applies || body.applies(query)) && takes_shared(body) &&
        (!body.streamed ||
         (are_constant(graph, node, body.streamed->operands) && are_constant(graph, node, {"norm"}))) &&
        (!body.packed || are_constant(graph, node, body.packed->operands)))
      return &body;
  return nullptr;
}

namespace {
// Of `candidates` those that every reader and writer takes in the form that `operands` of its body name.
std::vector<bool> taken_by_all(const Graph& graph, const std::string& target, std::vector<bool> candidates,
                               std::vector<std::string> TunedBody::*operands) {
  for (const Node& node : graph.nodes()) {
    const TunedBody* body = tuned_body(graph, node, target);
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (!body || !is_among(body->*operands, node.op->operands[i].name))
        candidates[static_cast<size_t>(node.operands[i])] = false;
  }
  return candidates;
}
}  // namespace

std::vector<bool> exchanged_tensors(const Graph& graph, const std::string& target) {
  // A word costs twice the bytes of what it carries, and each reader reads all of them.
  constexpr int64_t kMostBytes = 1 << 20;
  std::vector<bool> candidates;
  for (const Tensor& tensor : graph.tensors()) {
    const bool whole_words =
        tensor.dtype == DType::f32 || tensor.dtype == DType::i32 ||
        (tensor.dtype == DType::bf16 && !tensor.shape.empty() && tensor.shape.back().size % 2 == 0);
    candidates.push_back(tensor.kind == TensorKind::activation && whole_words && tensor.bytes() <= kMostBytes);
  }
  // Of each word there is one write an iteration.
  std::vector<int> num_writers(graph.tensors().size(), 0);
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].role != loop::Role::input) ++num_writers[static_cast<size_t>(node.operands[i])];
  for (size_t t = 0; t < candidates.size(); ++t)
    if (num_writers[t] > 1) candidates[t] = false;
  // Several rows that all workers read, before they multiply: to look at each word costs more than to wait once.
  for (const Node& node : graph.nodes()) {
    const TunedBody* body = tuned_body(graph, node, target);
    if (!body || !body->streamed) continue;
    const auto x = static_cast<size_t>(node.operands[0]);  // activations come first
    if (graph.tensors()[x].shape[0].size > stream::kMostRowsOfWords) candidates[x] = false;
  }
  return taken_by_all(graph, target, std::move(candidates), &TunedBody::exchanged);
}

std::vector<bool> blocked_tensors(const Graph& graph, const std::string& target) {
  std::vector<bool> candidates;
  for (const Tensor& tensor : graph.tensors())
    candidates.push_back(tensor.kind == TensorKind::activation && tensor.dtype == DType::bf16 &&
                         tensor.shape.size() == 2 && tensor.shape[0].size > stream::kMostRowsOfWords &&
                         row_blocks::fits(tensor.shape[0].size, tensor.shape[1].size));
  return taken_by_all(graph, target, std::move(candidates), &TunedBody::blocked);
}

std::vector<bool> paired_tensors(const Graph& graph, const std::string& target) {
  std::vector<bool> candidates;
  for (const Tensor& tensor : graph.tensors()) {
    const int64_t bytes = dtype_bytes(tensor.dtype);
    candidates.push_back(tensor.any_layout && tensor.shape.size() == 4 &&
                         page_pairs::fits(tensor.shape[0].size, tensor.num_elements() / tensor.shape[0].size * bytes,
                                          tensor.shape[3].size * bytes));
  }
  return taken_by_all(graph, target, std::move(candidates), &TunedBody::paired);
}

std::vector<bool> packed_tensors(const Graph& graph, const std::string& target) {
  std::vector<bool> packed(graph.tensors().size(), false);
  for (const Node& node : graph.nodes()) {
    const TunedBody* body = tuned_body(graph, node, target);
    if (!body || !body->packed) continue;
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (is_among(body->packed->operands, node.op->operands[i].name))
        packed[static_cast<size_t>(node.operands[i])] = true;
  }
  return packed;
}

int packed_together(DType dtype) {
  return dtype == DType::bf16 ? panel::kPair : dtype == DType::i8 ? panel::kQuad : panel::kSingle;
}

std::vector<int> kernel_of_node(const Graph& graph, const std::string& target) {
  const Forms forms(graph, target);
  // An operator that was declared anew has the name of the one before.
  std::map<std::pair<const Operator*, std::string>, int> by_signature;
  std::vector<int> result;
  for (const Node& node : graph.nodes())
    result.push_back(
        by_signature
            .emplace(std::pair{node.op, signature_of(graph, node, forms)}, static_cast<int>(by_signature.size()))
            .first->second);
  return result;
}

LoweredGraph lower(const Graph& graph, const std::string& target) {
  LoweredGraph result;
  result.kernel_of_node = kernel_of_node(graph, target);
  const Forms forms(graph, target);
  result.exchanged = forms.exchanged;
  std::map<std::string, int> used_names;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (result.kernel_of_node[n] < static_cast<int>(result.kernels.size())) continue;
    interruption_check();
    const Node& node = graph.nodes()[n];
    LoweredKernel lowered;
    try {
      loop::with_isl_limit(node.op->name, [&] { lowered = lower_node(graph, node, target, forms); });
    } catch (const UserError& error) { throw UserError(fmt::format("{} (node \"{}\")", error.what(), node.name)); }
    lowered.signature = signature_of(graph, node, forms);
    lowered.name = fmt::format("{}_{}", node.op->name, used_names[node.op->name]++);
    result.kernels.push_back(std::move(lowered));
  }
  return result;
}

}  // namespace megalith::graph
