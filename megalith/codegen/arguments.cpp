#include "megalith/codegen/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "megalith/base/error.h"
#include "megalith/codegen/expression.h"
#include "megalith/codegen/place.h"
#include "megalith/codegen/source_text.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/text.h"
#include "megalith/ops/streamed.h"
#include "megalith/runtime/protocol.h"

namespace megalith::codegen {

namespace {

std::string shape_text(const loop::TensorArgument& tensor) {
  std::vector<std::string> extents;
  for (const loop::Expr& extent : tensor.shape) extents.push_back(loop::print(extent));
  return fmt::format("({})", fmt::join(extents, ", "));
}

std::string pointer_type(const loop::TensorArgument& tensor) {
  return fmt::format("{}{}*", tensor.role == loop::Role::input ? "const " : "", element_type(*tensor.dtype));
}

// Operand number `index`: a pointer, or words that carry a flag (kernels/cuda/pipeline/ll_buffer.cuh).
bool lies_in(const graph::LoweredKernel& lowered, size_t index, graph::Layout layout) {
  return index < lowered.layouts.size() && lowered.layouts[index] == layout;
}
bool is_exchanged(const graph::LoweredKernel& lowered, size_t index) {
  return lies_in(lowered, index, graph::Layout::flag_in_data);
}

// Or in blocks: then its type says how large it is (kernels/cuda/mainloop/fragment_layout.cuh).
bool is_blocked(const graph::LoweredKernel& lowered, size_t index) {
  return lies_in(lowered, index, graph::Layout::fragments);
}
std::string blocked_type(const graph::LoweredKernel& lowered, const loop::TensorArgument& tensor) {
  const loop::Kernel bound = loop::bind_sizes(lowered.kernel, lowered.binding);  // dynamic sizes at their largest
  std::vector<std::string> extents;
  for (const loop::Expr& extent : bound.find_tensor(tensor.name)->shape) extents.push_back(loop::print(extent));
  return fmt::format("Blocked<{}{}, {}>", tensor.role == loop::Role::input ? "const " : "", element_type(*tensor.dtype),
                     fmt::join(extents, ", "));
}

// Or in pairs of heads (kernels/cuda/attention/kv_pages.cuh).
bool is_paired(const graph::LoweredKernel& lowered, size_t index) {
  return lies_in(lowered, index, graph::Layout::head_pairs);
}
std::string paired_type(const graph::LoweredKernel& lowered, const loop::TensorArgument& tensor) {
  const loop::Kernel bound = loop::bind_sizes(lowered.kernel, lowered.binding);
  std::vector<std::string> extents;
  for (const loop::Expr& extent : bound.find_tensor(tensor.name)->shape)
    extents.push_back(fmt::format("i64({})", loop::print(extent)));
  return fmt::format("Paired<{}{}, {}>", tensor.role == loop::Role::input ? "const " : "", element_type(*tensor.dtype),
                     fmt::join(extents, " * "));
}

// Or in int8, of what a body streams (kernels/cuda/mainloop/int8.cuh).
bool is_int8(const graph::LoweredKernel& lowered, size_t index) {
  return lies_in(lowered, index, graph::Layout::int8) && lowered.body && lowered.body->streamed &&
         std::ranges::find(lowered.body->streamed->operands, lowered.op->operands[index].name) !=
             lowered.body->streamed->operands.end();
}

// Bodies for a GPU get more of their worker than memory: its shared area, its place in the stream, the iteration.
bool is_tuned_for_cuda(const graph::LoweredKernel& lowered) { return lowered.body && lowered.body->target == "cuda"; }
// Bodies that read packed weights know which ones their worker reads next (runtime/weights_ahead.h).
bool knows_weights_ahead(const graph::LoweredKernel& lowered) {
  return lowered.body && lowered.body->packed && lowered.body->target == "cpu";
}

// In which order a body's weights come, as the task graph has it (task/streams.h) where the ring is long enough.
std::string stream_constant(const graph::LoweredKernel& lowered) {
  const graph::BodyQuery query = graph::body_query(lowered);
  const stream::Order order = ops::stream_order(*lowered.body->streamed, query);
  return fmt::format(
      "  static constexpr stream::Order kStream = {{.slices = {}, .group = {}, .chunks = {}, .part = {}, .turn = "
      "{}, .partners = {}}};\n"
      "  static constexpr bool kHoldsActivations = {};\n",
      order.slices, order.group, order.chunks, order.part, order.turn, order.partners,
      ops::holds_activations(*lowered.body->streamed, query));
}

// A range of the tiled iname, kept inside the iname's own bounds where those are not the largest ones.
struct TileRange {
  std::string begin, end;
};
TileRange tile_range(const loop::Domains& domains, const std::string& iname, size_t axis) {
  const loop::LoopBounds bounds = loop::iname_bounds(domains, iname);
  const std::string lower = join_bounds(bounds.lower, "max"), upper = join_bounds(bounds.upper, "min");
  auto is_number = [](const std::string& text) { return text.find_first_not_of("-0123456789") == std::string::npos; };
  TileRange range{fmt::format("task.begin[{}]", axis), fmt::format("task.end[{}]", axis)};
  if (!is_number(lower)) range.begin = fmt::format("max(i64({}), {})", range.begin, lower);
  if (!is_number(upper)) range.end = fmt::format("min(i64({}), {})", range.end, upper);
  return range;
}

std::string attribute_literal(const std::string& kernel, const loop::Attribute& attribute, double value) {
  MEGALITH_CHECK(!std::isnan(value), "[{}] the attribute {} is not a number", kernel, attribute.name);
  const auto narrow = static_cast<float>(value);
  if (std::isinf(narrow)) return narrow > 0 ? "kInfinity" : "-kInfinity";
  const std::string text = fmt::format("{}", narrow);
  return text + (text.find_first_of(".e") == std::string::npos ? ".0f" : "f");
}

bool has_epilogue(const graph::LoweredKernel& lowered) { return lowered.body && lowered.op && lowered.op->epilogue; }

// What an epilogue reads besides its values; where one of its operands is the output, too, that (loop/in_place.h).
std::vector<std::string> epilogue_reads(const graph::LoweredKernel& lowered) {
  std::vector<std::string> names;
  const std::function<void(const loop::Expr&)> look = [&](const loop::Expr& expr) {
    const bool is_read = expr.kind == loop::Expr::Kind::subscript && !lowered.op->epilogue->is_value(expr.name);
    if (is_read && std::ranges::find(names, expr.name) == names.end()) names.push_back(expr.name);
    std::ranges::for_each(expr.args, look);
  };
  look(lowered.kernel.instructions.back().value);
  return names;
}
bool is_finished(const graph::LoweredKernel& lowered, const loop::TensorArgument& tensor) {
  return has_epilogue(lowered) && tensor.name == lowered.kernel.instructions.back().target.name;
}

// Where they are, in that order.
std::vector<std::string> epilogue_fields(const graph::LoweredKernel& lowered) {
  std::vector<std::string> fields;
  for (const std::string& name : epilogue_reads(lowered)) {
    const std::vector<const loop::TensorArgument*> operands = operands_of(lowered);
    const auto found = std::ranges::find(operands, name, &loop::TensorArgument::name);
    fields.push_back(
        fmt::format("static_cast<{}>(task.operands[{}])", pointer_type(**found), found - operands.begin()));
  }
  return fields;
}

// Tensors that are read at the very place that is written.
std::vector<std::string> read_where_written(const loop::Expr& value, const loop::Expr& target) {
  const auto print = [](const loop::Expr& expr) { return loop::print(expr); };
  std::vector<std::string> names;
  const std::function<void(const loop::Expr&)> look = [&](const loop::Expr& expr) {
    if (expr.kind == loop::Expr::Kind::subscript && std::ranges::equal(expr.args, target.args, {}, print, print) &&
        std::ranges::find(names, expr.name) == names.end())
      names.push_back(expr.name);
    std::ranges::for_each(expr.args, look);
  };
  look(value);
  return names;
}

// Of the last instruction of a fused kernel: what it makes of the values that the body has, at a row and a column.
std::string write_epilogue(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect) {
  const graph::Epilogue& epilogue = *lowered.op->epilogue;
  const loop::Instruction& last = bound.instructions.back();
  BodyContext context(bound, lowered.binding, dialect);
  // Of what is rounded to 16 bits a few units of the last place of an f32 are nothing.
  context.approximates =
      dialect.target == "cuda" && dtype_is_half(*lowered.kernel.find_tensor(last.target.name)->dtype);
  std::vector<std::string> parameters;
  for (const std::string& name : epilogue.values) {
    context.locals[name] = Type::f32;
    parameters.push_back("f32 " + name);
  }
  const std::function<void(loop::Expr&)> take_value = [&](loop::Expr& expr) {
    if (expr.kind == loop::Expr::Kind::subscript && epilogue.is_value(expr.name)) expr = loop::make_name(expr.name);
    for (loop::Expr& arg : expr.args) take_value(arg);
  };
  loop::Expr value = last.value;
  take_value(value);
  std::string text = fmt::format("// What becomes of what a body computes before it is {}.\nstruct {}_epilogue {{\n",
                                 loop::print(last.target), lowered.name);
  for (const std::string& name : epilogue_reads(lowered))
    text += fmt::format("  {} {};\n", pointer_type(*lowered.kernel.find_tensor(name)), member_name(name));
  for (const loop::Attribute& attribute : lowered.kernel.attributes)
    if (loop::mentions(value, attribute.name))
      text += fmt::format("  static constexpr f32 {} = {};\n", attribute.name,
                          attribute_literal(lowered.name, attribute, lowered.binding.attributes.at(attribute.name)));
  const std::string columns = loop::print(bound.find_tensor(last.target.name)->shape.back());
  const std::string &row = last.target.args[0].name, &column = last.target.args[1].name;
  text += fmt::format(
      "  static constexpr i64 kColumns = {};\n"
      "  f32 finish({}, [[maybe_unused]] i64 {}, [[maybe_unused]] i64 {}) const {{ return {}; }}\n",
      columns, fmt::join(parameters, ", "), row, column, ExpressionWriter(context).write(value, Type::f32));
  const std::vector<std::string> beside =
      dialect.target == "cpu" ? read_where_written(value, last.target) : std::vector<std::string>{};
  if (!beside.empty()) {
    text += fmt::format("  void ask(i64 {}, i64 {}) const {{\n", row, column);
    for (const std::string& name : beside)
      text += fmt::format("    __builtin_prefetch({} + {} * kColumns + {});\n", member_name(name), row, column);
    text += "  }\n";
  }
  return text + "};\n";
}

}  // namespace

std::vector<const loop::TensorArgument*> operands_of(const graph::LoweredKernel& lowered) {
  std::vector<const loop::TensorArgument*> result;
  for (const loop::TensorArgument& tensor : lowered.kernel.tensors)
    if (tensor.role != loop::Role::temporary) result.push_back(&tensor);
  // The operator's order is what a task's operands follow; the kernel's declarations come from it.
  if (lowered.op) {
    result.clear();
    for (const graph::Operand& operand : lowered.op->operands) {
      const loop::TensorArgument* tensor = lowered.kernel.find_tensor(operand.name);
      MEGALITH_ASSERT(tensor, "[{}] the loop kernel has no tensor {}", lowered.name, operand.name);
      result.push_back(tensor);
    }
  }
  return result;
}

bool streams_int8(const graph::LoweredKernel& lowered) {
  for (size_t i = 0; lowered.op && i < lowered.op->operands.size(); ++i)
    if (is_int8(lowered, i)) return true;
  return false;
}

std::string member_name(const std::string& tensor) {
  static const std::set<std::string> taken = {"scratch", "abort", "iteration", "ahead", "faults",
                                              "Checks",  "ring",  "epoch",     "task",  "of"};
  return taken.contains(tensor) || is_word_of_cpp(tensor) ? tensor + "_" : tensor;
}

std::string write_arguments_struct(const graph::LoweredKernel& lowered, const loop::Kernel& bound,
                                   const ArgumentExtras& extras, const Dialect& dialect) {
  std::string text = has_epilogue(lowered) ? write_epilogue(lowered, bound, dialect) : "";
  text += fmt::format("struct {}_args {{\n", lowered.name);
  size_t operand = 0;
  for (const loop::TensorArgument* tensor : operands_of(lowered)) {
    std::string type = is_exchanged(lowered, operand) ? fmt::format("Words<{}>", element_type(*tensor->dtype))
                       : is_blocked(lowered, operand) ? blocked_type(lowered, *tensor)
                       : is_paired(lowered, operand)  ? paired_type(lowered, *tensor)
                       : is_int8(lowered, operand)    ? fmt::format("Int8<{}>", element_type(*tensor->dtype))
                                                      : pointer_type(*tensor);
    ++operand;
    if (is_finished(lowered, *tensor)) type = fmt::format("Finished<{}, {}_epilogue>", type, lowered.name);
    text += fmt::format("  {} {};  // {}\n", type, member_name(tensor->name), shape_text(*tensor));
  }
  std::vector<std::string> constants;
  for (const loop::Parameter& parameter : lowered.kernel.parameters) {
    const int64_t size = lowered.binding.sizes.at(parameter.name);
    if (parameter.dynamic) {
      text += fmt::format("  i64 {};  // dynamic, at most {}\n", parameter.name, size);
      constants.push_back(fmt::format("{}_largest = {}", parameter.name, size));
    } else {
      constants.push_back(fmt::format("{} = {}", parameter.name, size));
      // Tuned bodies work with room for the largest size, whether the size is dynamic or not.
      if (bound.opaque || is_tuned_for_cuda(lowered))
        constants.push_back(fmt::format("{}_largest = {}", parameter.name, size));
    }
  }
  if (!constants.empty()) text += fmt::format("  static constexpr i64 {};\n", fmt::join(constants, ", "));
  for (const loop::Attribute& attribute : lowered.kernel.attributes) {
    const auto given = lowered.binding.attributes.find(attribute.name);
    const double value = given == lowered.binding.attributes.end() ? attribute.value : given->second;
    text += fmt::format("  static constexpr f32 {} = {};\n", attribute.name,
                        attribute_literal(lowered.name, attribute, value));
  }
  if (is_tuned_for_cuda(lowered) && lowered.body->streamed) text += stream_constant(lowered);
  for (const std::string& iname : lowered.tiled) text += fmt::format("  i64 {0}_begin, {0}_end;\n", iname);
  text += "  u8* scratch;\n";
  if (extras.scratch_bytes > 0)
    text += fmt::format("  static constexpr i64 kScratchBytes = {};\n", extras.scratch_bytes);
  if (extras.has_checks) text += "  FaultNote faults;\n";
  if (extras.has_checks && lowered.body) {
    std::vector<std::string> numbers;
    for (const loop::TensorArgument* tensor : operands_of(lowered))
      numbers.push_back(fmt::format("{} = {}", member_name(tensor->name), numbers.size()));
    text += fmt::format("  struct Checks {{\n    static constexpr u32 {};\n  }};\n", fmt::join(numbers, ", "));
  }
  if (knows_weights_ahead(lowered)) text += "  const u8* const* ahead;\n";
  // A body that waits for the host must notice that the run has ended.
  if (bound.opaque) text += "  u32 iteration;\n  const u32* abort;\n";
  // A body that looks operands up again, rather than keep them in registers, does so by of(*task).
  if (is_tuned_for_cuda(lowered))
    text +=
        fmt::format("  RingPlace ring;\n  Epoch epoch;\n  const Task* task;\n  static {}_args of(const Task& task);\n",
                    lowered.name);
  return text + "};\n";
}

std::string write_arguments_function(const graph::LoweredKernel& lowered, const loop::Kernel& bound,
                                     const ArgumentExtras& extras, const Dialect& dialect) {
  MEGALITH_ASSERT(lowered.tiled.size() <= runtime::kMaxAxes, "[{}] more task axes than a task record has",
                  lowered.name);
  const loop::Domains domains(bound);
  std::string text = fmt::format("static {0}_args {0}_arguments([[maybe_unused]] const Task& task) {{\n", lowered.name);
  std::string fields;
  size_t operand = 0;
  for (const loop::TensorArgument* tensor : operands_of(lowered)) {
    const bool words = is_exchanged(lowered, operand), wrapped = words || is_blocked(lowered, operand) ||
                                                                 is_paired(lowered, operand) ||
                                                                 is_int8(lowered, operand);
    std::string value = fmt::format("{}static_cast<{}>(task.operands[{}]){}", wrapped ? "{" : "",
                                    words ? "u64*" : pointer_type(*tensor), operand, wrapped ? "}" : "");
    if (is_finished(lowered, *tensor))
      value = fmt::format("{{{}, {{{}}}}}", value, fmt::join(epilogue_fields(lowered), ", "));
    fields += fmt::format("      .{} = {},\n", member_name(tensor->name), value);
    ++operand;
  }
  for (const loop::Parameter& parameter : lowered.kernel.parameters) {
    if (!parameter.dynamic) continue;
    const std::string at = fmt::format("static_cast<const i32*>(task.operands[{}])", operand++);
    text += fmt::format("  const i64 {} = clamp({}, 0, {});\n", parameter.name,
                        is_tuned_for_cuda(lowered) ? "iteration_size(" + at + ")" : "*" + at,
                        lowered.binding.sizes.at(parameter.name));
    fields += fmt::format("      .{0} = {0},\n", parameter.name);
  }
  for (size_t axis = 0; axis < lowered.tiled.size(); ++axis) {
    const std::string& iname = lowered.tiled[axis];
    const TileRange range = tile_range(domains, iname, axis);
    fields += fmt::format("      .{0}_begin = {1},\n      .{0}_end = {2},\n", iname, range.begin, range.end);
  }
  fields += "      .scratch = task.scratch,\n";
  if (extras.has_checks)
    fields +=
        fmt::format("      .faults = {{{}}},\n", dialect.worker == Level::thread ? "task.fault" : "&task.head.index");
  if (knows_weights_ahead(lowered))
    fields += fmt::format("      .ahead = static_cast<const u8* const*>(task.operands[{}]),\n", operand);
  if (bound.opaque)
    fields += fmt::format("      .iteration = task.iteration,\n      .abort = {},\n",
                          is_tuned_for_cuda(lowered) ? "abort_word()" : "task.abort");
  if (is_tuned_for_cuda(lowered))
    fields += "      .ring = task.ring,\n      .epoch = {task.iteration + 1, task.times},\n      .task = &task,\n";
  text += fmt::format("  return {{\n{}  }};\n}}\n", fields);
  if (is_tuned_for_cuda(lowered))
    text +=
        fmt::format("inline {0}_args {0}_args::of(const Task& task) {{ return {0}_arguments(task); }}\n", lowered.name);
  return text;
}

}  // namespace megalith::codegen
