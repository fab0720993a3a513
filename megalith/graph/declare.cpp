#include "megalith/graph/declare.h"

#include <algorithm>
#include <set>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/graph/graph.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/sizes.h"
#include "megalith/loop/function.h"
#include "megalith/loop/text.h"

namespace megalith::graph {

namespace {

// Of a text the lines that are no declarations of a signature: lowering puts those in front itself.
std::string without_signature(const std::string& text) {
  std::string result;
  int open = 0;  // a declaration goes on inside brackets
  bool drops = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, end - at);
    at = end;
    if (open == 0) {
      const size_t first = std::min(line.find_first_not_of(" \t"), line.size());
      const std::string word = line.substr(first, line.find_first_of(" \t\n", first) - first);
      drops = word == "input" || word == "output" || word == "inout" || word == "parameter" || word == "attribute" ||
              word == "kernel";
    }
    for (char c : line) open += c == '[' || c == '(' || c == '{' ? 1 : c == ']' || c == ')' || c == '}' ? -1 : 0;
    if (!drops) result += line;
  }
  return result;
}

// A size may be there for a shape alone: the rows of a table that data points into.
void add_parameters_of(const loop::Expr& extent, loop::Kernel& kernel) {
  if (extent.kind == loop::Expr::Kind::name && !kernel.is_parameter(extent.name))
    kernel.parameters.push_back({extent.name});
  for (const loop::Expr& arg : extent.args) add_parameters_of(arg, kernel);
}

loop::Kernel parse(const Declaration& d) {
  try {
    loop::Kernel kernel = loop::parse_kernel(d.text);
    kernel.name = d.name;
    for (const loop::TensorArgument& tensor : kernel.tensors)
      for (const loop::Expr& extent : tensor.shape) add_parameters_of(extent, kernel);
    return kernel;
  } catch (const UserError& error) {
    throw UserError(fmt::format("[{}] loop kernel does not parse: {}", d.name, error.what()));
  }
}

bool is_product(const loop::Expr& extent) {
  if (extent.kind == loop::Expr::Kind::call) return extent.name == "*" && std::ranges::all_of(extent.args, is_product);
  return extent.kind == loop::Expr::Kind::name || extent.kind == loop::Expr::Kind::number;
}

void add_operands(Operator& op, const loop::Kernel& kernel, const Declaration& d) {
  for (const loop::TensorArgument& tensor : kernel.tensors) {
    if (tensor.role == loop::Role::temporary) continue;
    const char* role = tensor.role == loop::Role::input ? "input" : "output";
    MEGALITH_CHECK(tensor.shape_known, "[{}] the shape of {} is not declared, want a line such as: {} {}: f32[T, N]",
                   d.name, tensor.name, role, tensor.name);
    Operand operand{tensor.name, tensor.role, {}, tensor.dtype.value_or(DType::f32)};
    for (const loop::Expr& extent : tensor.shape) {
      operand.shape.push_back(loop::print(extent));
      MEGALITH_CHECK(is_product(extent), "[{}] a dimension of {} is {}, want a size, a number, or a product of them",
                     d.name, tensor.name, operand.shape.back());
    }
    operand.exact_dtype =
        d.exact ? std::ranges::find(*d.exact, tensor.name) != d.exact->end() : !dtype_is_float(operand.dtype);
    if (const auto index = d.index.find(tensor.name); index != d.index.end()) {
      MEGALITH_CHECK(tensor.role == loop::Role::input && !dtype_is_float(operand.dtype),
                     "[{}] {} points into {}, so it must be an integer input, not {}", d.name, tensor.name,
                     index->second, dtype_name(operand.dtype));
      operand.index_into = index->second;
      operand.exact_dtype = true;
    }
    op.operands.push_back(std::move(operand));
  }
  for (const auto& [name, into] : d.index)
    MEGALITH_CHECK(op.find(name), "[{}] has no input \"{}\" that could point into {}", d.name, name, into);
  for (const std::string& name : d.exact.value_or(std::vector<std::string>{}))
    MEGALITH_CHECK(op.find(name), "[{}] has no operand \"{}\" that could be exact", d.name, name);
  MEGALITH_CHECK(std::ranges::any_of(op.operands, [](const Operand& o) { return o.role != loop::Role::input; }),
                 "[{}] writes nothing: declare an output", d.name);
}

// Sizes that shapes do not tell are the node's to give. A dimension tells one unknown factor.
void add_sizes(Operator& op, const loop::Kernel& kernel) {
  std::set<std::string> told;
  for (size_t before = told.size() + 1; before != told.size();) {
    before = told.size();
    for (const loop::TensorArgument& tensor : kernel.tensors)
      for (const loop::Expr& extent : tensor.role == loop::Role::temporary ? std::vector<loop::Expr>{} : tensor.shape) {
        std::set<std::string> unknown;
        for (const loop::Parameter& parameter : kernel.parameters)
          if (loop::mentions(extent, parameter.name) && !told.contains(parameter.name)) unknown.insert(parameter.name);
        if (unknown.size() == 1) told.merge(unknown);
      }
  }
  for (const loop::Parameter& parameter : kernel.parameters)
    if (!told.contains(parameter.name)) op.extra_sizes.push_back(parameter.name);
}

void add_axes(Operator& op, const loop::Kernel& kernel, const Declaration& d) {
  op.axes = d.axes;
  const std::vector<std::string> inames = kernel.inames();
  MEGALITH_CHECK(!d.one_task || op.axes.empty(),
                 "[{}] is to be one task, but tasks are cut along \"{}\": leave one out", d.name, op.axes[0].iname);
  if (op.axes.empty() && !d.one_task) {
    for (const loop::Instruction& instruction : kernel.instructions) {
      const loop::TensorArgument* target = kernel.find_tensor(instruction.target.name);
      if (!target || target->role == loop::Role::temporary || instruction.target.args.empty()) continue;
      const loop::Expr& first = instruction.target.args[0];
      if (first.kind == loop::Expr::Kind::name && std::ranges::find(inames, first.name) != inames.end())
        op.axes.push_back({first.name, 1});
      break;
    }
  }
  for (const TaskAxis& axis : op.axes) {
    MEGALITH_CHECK(std::ranges::find(inames, axis.iname) != inames.end(),
                   "[{}] tasks are cut along \"{}\", which is no loop variable; there are {}", d.name, axis.iname,
                   fmt::join(inames, ", "));
    MEGALITH_CHECK(axis.multiple >= 1, "[{}] tiles along \"{}\" are to be multiples of {}, want 1 or more", d.name,
                   axis.iname, axis.multiple);
  }
}

void check_tests(const Operator& op, const loop::Kernel& kernel) {
  for (const auto& test : op.tests) {
    std::vector<std::string> given;
    for (const auto& [name, size] : test) given.push_back(name);
    for (const loop::Parameter& parameter : kernel.parameters)
      MEGALITH_CHECK(test.contains(parameter.name), "[{}] a test has no size {}: it has {}", op.name, parameter.name,
                     test.empty() ? "none" : fmt::format("{}", fmt::join(given, ", ")));
    for (const auto& [name, size] : test) {
      MEGALITH_CHECK(kernel.is_parameter(name), "[{}] a test has a size {}, which the operator does not have", op.name,
                     name);
      MEGALITH_CHECK(size >= 1, "[{}] a test has {} = {}, want 1 or more", op.name, name, size);
    }
    // The checks of a loop kernel want sizes: those of a graph with one node.
    auto registry = std::make_shared<Registry>();
    registry->add(op);
    Graph graph(registry, op.name);
    std::vector<TensorId> inputs;
    NodeOptions options;
    for (const std::string& size : op.extra_sizes) options.sizes[size] = test.at(size);
    for (const Operand& operand : op.operands) {
      const TensorId id = graph.state(operand.name, operand.dtype, operand_shape(op, operand, {test, {}}));
      if (operand.role == loop::Role::output)
        options.outputs[operand.name] = id;
      else
        inputs.push_back(id);
    }
    graph.add(op.name, op.name, inputs, options);
    lower(graph, schedule_in_rows(graph, "cpu"));
  }
}

}  // namespace

Operator declare(const Declaration& d) {
  MEGALITH_CHECK(is_identifier(d.name), "an operator cannot be called \"{}\": want letters, digits and _", d.name);
  MEGALITH_CHECK(!loop::is_reserved_name(d.name), "an operator cannot be called \"{}\": it is a word of loop kernels",
                 d.name);
  const loop::Kernel kernel = parse(d);
  Operator op;
  op.name = d.name;
  op.doc = d.doc;
  op.attributes = kernel.attributes;
  op.loops = without_signature(d.text);
  op.tests = d.tests;
  op.any_sizes = d.any_sizes;
  add_operands(op, kernel, d);
  add_sizes(op, kernel);
  add_axes(op, kernel, d);
  MEGALITH_CHECK(!op.tests.empty(), "[{}] declares no sizes to be tested on", d.name);
  try {
    if (d.checks_tests) check_tests(op, kernel);
  } catch (const UserError&) {
    // An axis that nobody asked for is left out where tasks would find there what others have made of a tensor.
    if (!d.axes.empty() || std::exchange(op.axes, {}).empty()) throw;
    check_tests(op, kernel);
  }
  std::set<std::string> targets;
  for (const BodyText& body : d.bodies) {
    check_body_text(d.name, body);
    MEGALITH_CHECK(targets.insert(body.target).second, "[{}] has two bodies for {}", d.name, body.target);
    TunedBody tuned{.target = body.target, .file = "a text", .name = d.name, .text = body.text};
    if (body.shared_bytes > 0) tuned.file += fmt::format(", with {} bytes of shared memory", body.shared_bytes);
    if (body.shared_bytes > 0) tuned.area_bytes = [bytes = body.shared_bytes](const BodyQuery&) { return bytes; };
    op.bodies.push_back(std::move(tuned));
  }
  return op;
}

}  // namespace megalith::graph
