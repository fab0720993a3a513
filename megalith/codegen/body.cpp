#include "megalith/codegen/body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/block.h"
#include "megalith/codegen/body_schedule.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/columns.h"
#include "megalith/codegen/independence.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/codegen/source_text.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

using loop::Expr;
using loop::InameTag;
using loop::Instruction;
using loop::NestNode;

namespace {

class BodyWriter {
 public:
  /// `bound` with checks; `meaning` without, for the comments.
  BodyWriter(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const loop::Kernel& meaning,
             const Dialect& dialect)
      : lowered_(lowered),
        meaning_(meaning),
        context_(bound, lowered.binding, dialect),
        headers_(context_, lowered.tiled),
        writer_(context_),
        hoister_(context_, writer_, blocks_) {
    take_layouts(context_, lowered);
  }

  GeneratedBody write();

 private:
  void emit(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented);
  void emit_loop(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented);
  void emit_instruction(int index, const std::vector<std::string>& outer, const isl::set& implemented);
  Bounds emit_header(const NestNode& node, const LoopHeader& header);
  void declare_temporaries(const NestNode* loop);
  void store(const Instruction& instruction);
  Level level_of(InameTag tag) const;
  void wait_for_reads(const std::set<std::string>& writes);

  Block& block() { return blocks_.back(); }
  void line(std::string text) { block().lines.push_back(std::move(text)); }
  void open(const std::string& iname, const std::vector<int>& instructions);
  void close(const std::string& head);

  const graph::LoweredKernel& lowered_;
  const loop::Kernel& meaning_;
  BodyContext context_;
  LoopHeaders headers_;
  ExpressionWriter writer_;
  std::vector<Block> blocks_;
  Hoister hoister_;
};

const char* level_name(Level level) {
  return level == Level::thread ? "thread" : level == Level::warp ? "warp" : "block";
}

// The instruction as the loop kernel has it, in its own words.
std::string comment_of(const Instruction& instruction) {
  std::string text = fmt::format("{} = {}", loop::print(instruction.target), loop::print(instruction.value));
  if (instruction.condition) text += fmt::format("  {{if={}}}", loop::print(*instruction.condition));
  return "// " + comment_text(text);
}

void append_indented(std::vector<std::string>& to, const std::vector<std::string>& lines) {
  for (const std::string& text : lines) {
    std::string indented = "  ";
    for (const char c : text) {
      indented += c;
      if (c == '\n') indented += "  ";
    }
    to.push_back(std::move(indented));
  }
}

void BodyWriter::open(const std::string& iname, const std::vector<int>& instructions) {
  Block block;
  block.iname = iname;
  block.level = blocks_.empty() ? context_.dialect.worker : blocks_.back().level;
  for (const int index : instructions)
    block.writes.insert(context_.kernel.instructions[static_cast<size_t>(index)].target.name);
  blocks_.push_back(std::move(block));
}

void BodyWriter::close(const std::string& head) {
  const std::vector<std::string> lines = std::move(block().lines);
  blocks_.pop_back();
  line(head + " {");
  append_indented(block().lines, lines);
  line("}");
}

// Temporaries live in the loop that their vanished dimensions share.
void BodyWriter::declare_temporaries(const NestNode* loop) {
  const int depth = static_cast<int>(std::ranges::count_if(blocks_, [](const Block& b) { return !b.iname.empty(); }));
  for (const loop::TensorArgument& tensor : context_.kernel.tensors) {
    if (tensor.role != loop::Role::temporary) continue;
    const Place& place = context_.places.of.at(tensor.name);
    if (place.depth != depth || place.defined_by_write || place.where == Place::Where::operand) continue;
    if (loop && !block().writes.contains(tensor.name)) continue;
    const std::string type = element_type(place.dtype);
    if (place.where == Place::Where::scalar)
      line(fmt::format("{} {} = {{}};", type, place.text));
    else if (place.where == Place::Where::stack)
      // Whole vectors, so that compilers do not warn of the lanes that a short array would not have.
      line(fmt::format("alignas(64) {} {}[{}];", type, place.text, (place.num_elements + 15) / 16 * 16));
    else
      line(fmt::format("{0}* const {1} = reinterpret_cast<{0}*>(args.scratch + {2});  // {3} elements", type,
                       place.text, place.scratch_offset, place.num_elements));
  }
}

void BodyWriter::store(const Instruction& instruction) {
  const Place& place = context_.places.of.at(instruction.target.name);
  const std::string value = writer_.stored(instruction.value, place.dtype);
  if (place.defined_by_write)
    line(fmt::format("const {} {} = {};", element_type(place.dtype), place.text, value));
  else if (place.where == Place::Where::scalar || writer_.level() == Level::thread)
    line(fmt::format("{} = {};", writer_.element(instruction.target), value));
  else
    line(fmt::format("{}_store({}, {});", level_name(writer_.level()), writer_.element(instruction.target), value));
  hoister_.forget(instruction.target.name);
}

void BodyWriter::emit_instruction(int index, const std::vector<std::string>& outer, const isl::set& implemented) {
  Instruction instruction = context_.kernel.instructions[static_cast<size_t>(index)];
  line(comment_of(meaning_.instructions[static_cast<size_t>(index)]));
  writer_.set_scope(outer);
  writer_.set_instruction(index);
  writer_.set_level(block().level);

  std::vector<std::string> tests = loop::guards(context_.domains.over(instruction.within), implemented);
  bool only_checks = tests.empty();  // that the target is inside: reads need not wait for them
  for (Expr condition : headers_.conditions_of(index)) {
    only_checks = only_checks && is_check_of_target(condition);
    // What is tested behind other tests is evaluated behind them.
    hoister_.hoist(condition, {}, has_check(condition) && !tests.empty() && !only_checks);
    tests.push_back(writer_.write(condition, Type::truth, 4));
  }
  if (!tests.empty()) {
    if (Place& place = context_.places.of.at(instruction.target.name); place.defined_by_write) {
      line(fmt::format("{} {} = {{}};", element_type(place.dtype), place.text));
      place.defined_by_write = false;
    }
    open("", {index});
    block().strict = !only_checks;
  }
  // Subscripts within the target are part of the address: only what they read is worth a name.
  for (Expr& arg : instruction.target.args) hoister_.hoist(arg);
  hoister_.hoist(instruction.value);
  wait_for_reads({instruction.target.name});
  store(instruction);
  if (!tests.empty()) close(fmt::format("if ({})", fmt::join(tests, " && ")));
  if (block().level != Level::thread) line(fmt::format("{}_sync();", level_name(block().level)));
}

// Named values are read by every thread for itself: all have, before one of them writes there.
void BodyWriter::wait_for_reads(const std::set<std::string>& writes) {
  if (block().level != Level::block) return;
  for (const Block& one : blocks_)
    for (const Block::Named& value : one.named)
      if (reads_any(value.value, writes)) return line("block_sync();");
}

// Who takes the iterations of a loop, as the schedule has it.
Level BodyWriter::level_of(InameTag tag) const {
  if (blocks_.back().level != Level::block) return blocks_.back().level;
  return tag == InameTag::warp ? Level::warp : tag == InameTag::thread_0 ? Level::thread : Level::block;
}

// "i64 k = ...; k < ...".
Bounds BodyWriter::emit_header(const NestNode& node, const LoopHeader& header) {
  std::vector<std::string> lower = header.lower, upper = header.upper;
  if (!header.conditions.empty()) writer_.set_instruction(instructions_in(node).front());
  for (Expr condition : header.conditions) {
    hoister_.hoist_reads(condition);
    const auto bound = condition_bound(condition, node.iname);
    (bound->is_upper ? upper : lower).push_back(writer_.write(*bound));
  }
  return {join_bounds(lower, "max"), join_bounds(upper, "min")};
}

void BodyWriter::emit_loop(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented) {
  const LoopHeader header = headers_.enter(node, outer, implemented);
  const auto& [lower, upper] = emit_header(node, header);
  std::vector<std::string> inames = outer;
  inames.push_back(node.iname);
  const InameTag tag = tag_of_loop(context_.kernel, node);

  const bool in_vectors = context_.dialect.worker == Level::thread && tag == InameTag::vector;
  if (in_vectors && node.body.size() == 1) {
    const int index = node.body[0].instruction;
    Instruction instruction = context_.kernel.instructions[static_cast<size_t>(index)];
    if (has_reduce(instruction.value)) {
      writer_.set_scope(inames);
      writer_.set_instruction(index);
      line(comment_of(meaning_.instructions[static_cast<size_t>(index)]));
      // The loop itself is inside the helper, so nothing that depends on its iname can be named.
      for (Expr& arg : instruction.target.args) hoister_.hoist(arg, {node.iname});
      hoister_.hoist(instruction.value, {node.iname});
      line(write_columns(context_, writer_, instruction, node.iname, {lower, upper}));
      hoister_.forget(instruction.target.name);
      return;
    }
  }

  const Level around = block().level, level = level_of(tag);
  open(node.iname, instructions_in({node}));
  block().level = level;
  block().guarded = header.bounded_by_data;
  block().may_be_empty = header.may_be_empty;
  declare_temporaries(&node);
  for (const NestNode& child : node.body) emit(child, inames, header.inside);
  const std::vector<std::string> lines = std::move(block().lines);
  const std::set<std::string> writes = block().writes;
  blocks_.pop_back();
  if (in_vectors) line(context_.dialect.independent);
  if (tag == InameTag::unroll) line(context_.dialect.unroll);
  if (level == around) {
    line(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0}) {{", node.iname, lower, upper));
  } else {
    wait_for_reads(writes);
    line(fmt::format("for (i64 {0} = {1}{3}(); {0} < {2}; {0} += {4}) {{", node.iname,
                     lower == "0" ? "" : lower + " + ", upper, level_name(level),
                     level == Level::warp ? "kWarps" : "kThreads"));
  }
  append_indented(block().lines, lines);
  line("}");
  if (level != around) line("block_sync();");
}

void BodyWriter::emit(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented) {
  if (node.iname.empty())
    emit_instruction(node.instruction, outer, implemented);
  else
    emit_loop(node, outer, implemented);
}

GeneratedBody BodyWriter::write() {
  check_names_of_body(context_.kernel);
  std::vector<int> all;
  for (const NestNode& node : context_.nest) std::ranges::copy(instructions_in(node), std::back_inserter(all));
  open("", all);
  declare_temporaries(nullptr);
  const isl::set context = loop::parameter_context(context_.kernel);
  for (const NestNode& node : context_.nest) emit(node, {}, context);
  // The worker loop has one before the signal.
  if (!block().lines.empty() && block().lines.back() == "block_sync();") block().lines.pop_back();

  std::vector<std::string> lines;
  append_indented(lines, block().lines);
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));

  // Short names for what the text uses; comments do not count.
  std::string code;
  for (const std::string& one : lines)
    if (one.compare(one.find_first_not_of(' '), 2, "//") != 0) code += one + "\n";
  std::string names;
  auto name = [&](const std::string& type, const std::string& local, const std::string& member) {
    if (has_word(code, local)) names += fmt::format("  {} {} = {};\n", type, local, member);
  };
  for (const loop::TensorArgument& tensor : context_.kernel.tensors) {
    const Place& place = context_.places.of.at(tensor.name);
    if (place.where != Place::Where::operand || tensor.role == loop::Role::temporary) continue;
    const std::string constant = tensor.role == loop::Role::input ? "const " : "";
    name(fmt::format("{}{}* const", constant, element_type(place.dtype)), place.text,
         "args." + member_name(tensor.name));
  }
  for (const loop::Parameter& parameter : context_.kernel.parameters)
    name("const i64", parameter.name, "args." + parameter.name);
  for (const loop::Attribute& attribute : context_.kernel.attributes)
    name("constexpr f32", attribute.name, fmt::format("{}_args::{}", lowered_.name, attribute.name));
  for (const std::string& iname : lowered_.tiled) {
    name("const i64", iname + "_begin", fmt::format("args.{}_begin", iname));
    name("const i64", iname + "_end", fmt::format("args.{}_end", iname));
  }

  GeneratedBody result;
  result.scratch_bytes = context_.places.scratch_bytes;
  const bool uses_args = !names.empty() || has_word(code, "args");
  result.text = fmt::format("{} {}({}const {}_args& args) {{\n{}{}\n}}\n", context_.dialect.function, lowered_.name,
                            uses_args ? "" : "[[maybe_unused]] ", lowered_.name, names, text);
  return result;
}

}  // namespace

GeneratedBody generate_body(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect) {
  const loop::Kernel scheduled =
      scheduled_body(bound, lowered.steps ? *lowered.steps : default_schedule(lowered, bound, dialect));
  loop::Kernel checked = scheduled;
  std::vector<CheckText> checks = add_checks(checked);
  GeneratedBody body = BodyWriter(lowered, checked, scheduled, dialect).write();
  body.checks = std::move(checks);
  return body;
}

}  // namespace megalith::codegen
