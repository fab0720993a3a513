#include "megalith/codegen/body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/body_schedule.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/columns.h"
#include "megalith/codegen/independence.h"
#include "megalith/codegen/nest_writer.h"
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

class BodyWriter : public NestWriter {
 public:
  /// `context`: of the kernel with checks; `meaning` without, for the comments.
  BodyWriter(const graph::LoweredKernel& lowered, BodyContext& context, const loop::Kernel& meaning)
      : NestWriter(context, lowered.tiled),
        lowered_(lowered),
        meaning_(meaning),
        nest_(context.nest),
        hoister_(context, writer_, blocks_) {}

  GeneratedBody write();

 private:
  bool emit_at_once(const NestNode& node, const LoopHeader& header, const Bounds& bounds,
                    const Inames& inames) override;
  void begin_loop(const NestNode& node, const LoopHeader& header) override;
  void end_loop(const NestNode& node, const Bounds& bounds, const Block& done) override;
  std::string pragma_of(const NestNode& node) const override;
  void begin_statement(int index) override;
  void name_parts(Expr& expr, bool strict) override { hoister_.hoist(expr, {}, strict); }
  void name_reads(Expr& expr) override { hoister_.hoist_reads(expr); }
  void begin_guarded(const Instruction& instruction) override;
  void store(const Instruction& instruction) override;
  void end_statement(int index) override;

  InameTag tag_of(const NestNode& node) const { return tag_of_loop(context_.kernel, node); }
  bool is_in_vectors(const NestNode& node) const {
    return context_.dialect.worker == Level::thread && tag_of(node) == InameTag::vector;
  }
  void declare_temporaries(const NestNode* loop);
  Level level_of(InameTag tag) const;
  void wait_for_reads(const std::set<std::string>& writes);
  std::string comment_of(int index) const;

  const graph::LoweredKernel& lowered_;
  const loop::Kernel& meaning_;
  const std::vector<NestNode>& nest_;
  Hoister hoister_;
};

const char* level_name(Level level) {
  return level == Level::thread ? "thread" : level == Level::warp ? "warp" : "block";
}

// The instruction as the loop kernel has it, in its own words.
std::string BodyWriter::comment_of(int index) const {
  const Instruction& instruction = meaning_.instructions[static_cast<size_t>(index)];
  std::string text = fmt::format("{} = {}", loop::print(instruction.target), loop::print(instruction.value));
  if (instruction.condition) text += fmt::format("  {{if={}}}", loop::print(*instruction.condition));
  return "// " + comment_text(text);
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

void BodyWriter::begin_statement(int index) {
  line(comment_of(index));
  writer_.set_level(block().level);
}

void BodyWriter::begin_guarded(const Instruction& instruction) {
  Place& place = context_.places.of.at(instruction.target.name);
  if (!place.defined_by_write) return;
  line(fmt::format("{} {} = {{}};", element_type(place.dtype), place.text));
  place.defined_by_write = false;
}

void BodyWriter::store(const Instruction& instruction) {
  wait_for_reads({instruction.target.name});
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

void BodyWriter::end_statement(int) {
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
  const Level around = blocks_[blocks_.size() - 2].level;
  if (around != Level::block) return around;
  return tag == InameTag::warp ? Level::warp : tag == InameTag::thread_0 ? Level::thread : Level::block;
}

std::string BodyWriter::pragma_of(const NestNode& node) const {
  return is_in_vectors(node)                ? context_.dialect.independent
         : tag_of(node) == InameTag::unroll ? context_.dialect.unroll
                                            : "";
}

// Sums side by side, each in order.
bool BodyWriter::emit_at_once(const NestNode& node, const LoopHeader&, const Bounds& bounds, const Inames& inames) {
  if (!is_in_vectors(node) || node.body.size() != 1) return false;
  const int index = node.body[0].instruction;
  Instruction statement = instruction(index);
  if (!has_reduce(statement.value)) return false;
  writer_.set_scope(inames);
  writer_.set_instruction(index);
  line(comment_of(index));
  // The loop itself is inside the helper, so nothing that depends on its iname can be named.
  for (Expr& arg : statement.target.args) hoister_.hoist(arg, {node.iname});
  hoister_.hoist(statement.value, {node.iname});
  line(write_columns(context_, writer_, statement, node.iname, bounds));
  hoister_.forget(statement.target.name);
  return true;
}

void BodyWriter::begin_loop(const NestNode& node, const LoopHeader& header) {
  block().level = level_of(tag_of(node));
  block().guarded = header.bounded_by_data;
  block().may_be_empty = header.may_be_empty;
  declare_temporaries(&node);
}

void BodyWriter::end_loop(const NestNode& node, const Bounds& bounds, const Block& done) {
  if (done.level == block().level) return NestWriter::end_loop(node, bounds, done);
  wait_for_reads(done.writes);
  line(fmt::format("for (i64 {0} = {1}{3}(); {0} < {2}; {0} += {4}) {{", node.iname,
                   bounds.lower == "0" ? "" : bounds.lower + " + ", bounds.upper, level_name(done.level),
                   done.level == Level::warp ? "kWarps" : "kThreads"));
  append_indented(block().lines, done.lines);
  line("}");
  line("block_sync();");
}

GeneratedBody BodyWriter::write() {
  check_names_of_body(context_.kernel);
  std::set<std::string> writes;
  for (const Instruction& instruction : context_.kernel.instructions) writes.insert(instruction.target.name);
  open("", std::move(writes));
  declare_temporaries(nullptr);
  emit(nest_, {}, loop::parameter_context(context_.kernel));
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
  BodyContext context(checked, lowered.binding, dialect);
  take_layouts(context, lowered);
  GeneratedBody body = BodyWriter(lowered, context, scheduled).write();
  body.checks = std::move(checks);
  return body;
}

}  // namespace megalith::codegen
