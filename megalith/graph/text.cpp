#include "megalith/graph/text.h"

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/check.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/text.h"

namespace megalith::graph {

namespace {

// A name such that no other text has it, and that ends where it seems to: the listing is what plans are found by.
std::string name_text(const std::string& name) { return plain_text(name, " ,()"); }

std::vector<std::string> name_texts(const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(name_text(name));
  return texts;
}

std::string shape_text(const Tensor& tensor) {
  std::vector<std::string> dims;
  for (const Dim& dim : tensor.shape)
    dims.push_back(dim.dynamic.empty() ? fmt::format("{}", dim.size)
                                       : fmt::format("{}<={}", name_text(dim.dynamic), dim.size));
  return fmt::format("{}[{}]", dtype_name(tensor.dtype), fmt::join(dims, ", "));
}

std::string shape_text(const loop::TensorArgument& tensor) {
  std::vector<std::string> sizes;
  for (const loop::Expr& size : tensor.shape) sizes.push_back(loop::print(size));
  return fmt::format("{}", fmt::join(sizes, ", "));
}

// "key=value, ..." of what lowering put in for the kernel's names; a comment for the reader.
std::string binding_text(const LoweredKernel& kernel) {
  std::vector<std::string> items;
  for (const auto& [size, value] : kernel.binding.sizes) items.push_back(fmt::format("{}={}", size, value));
  for (const auto& [name, value] : kernel.binding.attributes) items.push_back(fmt::format("{}={}", name, value));
  return fmt::format("{}", fmt::join(items, ", "));
}

// An operand lies in memory as the graph says.
void check_operands(const LoweredKernel& lowered, const loop::Kernel& kernel) {
  const loop::Kernel before = loop::bind(lowered.kernel, lowered.binding), after = loop::bind(kernel, lowered.binding);
  for (const loop::TensorArgument& tensor : before.tensors) {
    if (tensor.role == loop::Role::temporary) continue;
    const loop::TensorArgument* now = after.find_tensor(tensor.name);
    MEGALITH_CHECK(now && now->role == tensor.role && now->dtype == tensor.dtype,
                   "the kernel \"{}\" must keep its operand \"{}\"", lowered.name, tensor.name);
    const auto is_same = [](const loop::Expr& a, const loop::Expr& b) {
      const auto x = loop::constant_value(a), y = loop::constant_value(b);
      return x && y ? *x == *y : loop::same_expression(a, b);
    };
    MEGALITH_CHECK(std::ranges::equal(now->shape, tensor.shape, is_same),
                   "the kernel \"{}\" must keep the shape of its operand \"{}\", [{}]", lowered.name, tensor.name,
                   shape_text(*lowered.kernel.find_tensor(tensor.name)));
  }
  for (const loop::TensorArgument& tensor : after.tensors)
    MEGALITH_CHECK(tensor.role == loop::Role::temporary || before.find_tensor(tensor.name),
                   "the kernel \"{}\" has no operand \"{}\"", lowered.name, tensor.name);
}

// What is edited has its effect, or is refused: nobody shall look for it in vain.
void replace_kernel(LoweredKernel& lowered, loop::Kernel kernel) {
  const auto names = [](const std::vector<loop::Parameter>& parameters) {
    std::vector<std::string> list;
    for (const loop::Parameter& parameter : parameters)
      list.push_back(parameter.name + (parameter.dynamic ? " dynamic" : ""));
    return list;
  };
  MEGALITH_CHECK(names(kernel.parameters) == names(lowered.kernel.parameters),
                 "the kernel \"{}\" must keep its parameters: {}", lowered.name,
                 fmt::join(names(lowered.kernel.parameters), ", "));
  std::vector<std::string> attributes;
  for (const loop::Attribute& attribute : lowered.kernel.attributes) attributes.push_back(attribute.name);
  MEGALITH_CHECK(std::ranges::equal(kernel.attributes, lowered.kernel.attributes, {}, &loop::Attribute::name,
                                    &loop::Attribute::name),
                 "the kernel \"{}\" must keep its attributes: {}", lowered.name, fmt::join(attributes, ", "));
  for (const loop::Instruction& instruction : kernel.instructions)
    MEGALITH_CHECK(instruction.tags.empty(),
                   "the kernel \"{}\" has tags in \"{}\": how a body is distributed stands in bodies.txt", lowered.name,
                   instruction.id);
  MEGALITH_CHECK(kernel.tags.empty() || kernel.tags == lowered.kernel.tags,
                 "the kernel \"{}\" must keep its tags: tasks are cut along ({})", lowered.name,
                 fmt::join(lowered.tiled, ", "));
  kernel.tags = lowered.kernel.tags;
  kernel.opaque = lowered.kernel.opaque;
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  check_operands(lowered, kernel);
  if (!kernel.opaque) loop::check_kernel(loop::bind(kernel, lowered.binding));
  for (const loop::Attribute& attribute : kernel.attributes)
    lowered.binding.attributes[attribute.name] = attribute.value;
  lowered.kernel.attributes = kernel.attributes;
  if (loop::print(kernel) == loop::print(lowered.kernel)) return;
  MEGALITH_CHECK(!kernel.opaque, "the kernel \"{}\" is opaque: its text says what it touches, not what it does",
                 lowered.name);
  lowered.body = nullptr;  // a tuned body implements the operator's own meaning, not an edited one
  lowered.kernel = std::move(kernel);
}

// A node whose kernel was edited runs a generated body.
void follow_body(const Graph& graph, size_t index, const LoweredKernel& kernel, Schedule& schedule) {
  const Node& node = graph.nodes()[index];
  if (kernel.body || !schedule.nodes[index].body) return;
  schedule.nodes[index].body = nullptr;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Layout layout = schedule.layout(node.operands[i]);
    MEGALITH_CHECK(
        takes_layout(nullptr, node, i, layout),
        "the kernel \"{}\" was edited, so its body is generated, and that does not take \"{}\" in {}, as the "
        "tensor \"{}\" lies: give it rows in plan.txt",
        kernel.name, node.op->operands[i].name, kLayoutNames[static_cast<size_t>(layout)],
        graph.tensor(node.operands[i]).name);
  }
}

// Before the first kernel there are only comments.
void check_heading(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size()), first = text.find_first_not_of(" \t\r", at);
    MEGALITH_CHECK(first >= end || text[first] == '#', "\"{}\" stands before the first loop kernel",
                   text.substr(first, std::min<size_t>(end - first, 60)));
    at = end + 1;
  }
}

}  // namespace

std::string print(const Graph& graph) {
  std::string text = fmt::format("graph {}\n", name_text(graph.name()));
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.kind == TensorKind::activation) continue;
    text += fmt::format("{} {}: {}", tensor.kind == TensorKind::constant ? "constant" : "state", name_text(tensor.name),
                        shape_text(tensor));
    if (!tensor.parts.empty())
      text += fmt::format(" = stacked({}) in {} groups", fmt::join(name_texts(tensor.parts), ", "), tensor.groups);
    if (tensor.any_layout) text += " in any layout";
    if (tensor.by_load) text += " by load";
    text += "\n";
  }
  for (const auto& [name, where] : graph.dynamic_sizes())
    text +=
        fmt::format("dynamic {} = {}[{}]\n", name_text(name), name_text(graph.tensor(where.tensor).name), where.index);
  for (const Node& node : graph.nodes()) {
    std::vector<std::string> inputs, outputs;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Tensor& tensor = graph.tensor(node.operands[i]);
      if (node.op->operands[i].role != loop::Role::output) inputs.push_back(name_text(tensor.name));
      if (node.op->operands[i].role != loop::Role::input)
        outputs.push_back(fmt::format("{}: {}", name_text(tensor.name), shape_text(tensor)));
    }
    text += fmt::format("{} = {}({})", fmt::join(outputs, ", "), node.op->name, fmt::join(inputs, ", "));
    for (const std::string& size : node.op->extra_sizes) text += fmt::format(" {}={}", size, node.sizes.at(size));
    for (const auto& [name, value] : node.attributes) text += fmt::format(" {}={:.9g}", name, value);
    for (const auto& [iname, tile] : node.tile) text += fmt::format(" tile.{}={}", iname, tile);
    for (const auto& [iname, pieces] : node.pieces) text += fmt::format(" pieces.{}={}", iname, pieces);
    text += fmt::format("  # {}\n", name_text(node.name));
  }
  if (graph.gate_node())
    text += fmt::format("gate {}, stop {}\n", name_text(graph.nodes()[static_cast<size_t>(*graph.gate_node())].name),
                        name_text(graph.tensor(*graph.stop_tensor()).name));
  return text;
}

std::string print(const Graph& graph, const LoweredGraph& lowered) {
  std::string text = fmt::format("# {}: the loop kernels, one for each distinct signature\n", plain_text(graph.name()));
  for (size_t k = 0; k < lowered.kernels.size(); ++k) {
    const LoweredKernel& kernel = lowered.kernels[k];
    const auto users = std::count(lowered.kernel_of_node.begin(), lowered.kernel_of_node.end(), static_cast<int>(k));
    text += fmt::format("\n# {} node{}; {}; tasks along ({}); body: {}\n", users, users == 1 ? "" : "s",
                        binding_text(kernel), fmt::join(kernel.tiled, ", "),
                        kernel.body ? kernel.body->file + ": " + kernel.body->name : "generated");
    loop::Kernel named = kernel.kernel;
    named.name = kernel.name;
    text += loop::print(named);
  }
  return text;
}

LoweredGraph parse_loops(const std::string& text, const Graph& graph, LoweredGraph lowered) {
  constexpr std::string_view kBegin = "\nkernel ";
  const std::string all = "\n" + text;
  MEGALITH_CHECK(all.find(kBegin) != std::string::npos || lowered.kernels.empty(),
                 "there is no loop kernel in the text, want at least one line that begins with \"kernel \"");
  check_heading(all.substr(0, all.find(kBegin)));
  std::set<std::string> replaced;
  for (size_t at = all.find(kBegin); at != std::string::npos;) {
    const size_t next = all.find(kBegin, at + 1);
    loop::Kernel kernel = loop::parse_kernel(all.substr(at + 1, next == std::string::npos ? next : next - at));
    const auto found = std::find_if(lowered.kernels.begin(), lowered.kernels.end(),
                                    [&](const LoweredKernel& k) { return k.name == kernel.name; });
    MEGALITH_CHECK(found != lowered.kernels.end(), "there is no loop kernel \"{}\" to replace", kernel.name);
    MEGALITH_CHECK(replaced.insert(kernel.name).second, "the loop kernel \"{}\" stands there twice", kernel.name);
    kernel.name = found->kernel.name;
    loop::with_isl_limit(found->name, [&] { replace_kernel(*found, std::move(kernel)); });
    at = next;
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    follow_body(graph, n, lowered.kernels[static_cast<size_t>(lowered.kernel_of_node[n])], lowered.schedule);
  return lowered;
}

}  // namespace megalith::graph
