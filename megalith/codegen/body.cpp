#include "megalith/codegen/body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/block.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/columns.h"
#include "megalith/codegen/source_text.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/text.h"
#include "megalith/optimize/layout.h"

namespace megalith::codegen {

using loop::Expr;
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
        writer_(context_),
        hoister_(context_, writer_, blocks_) {
    for (size_t i = 0; i < lowered.layouts.size(); ++i) {
      Place& place = context_.places.of.at(lowered.op->operands[i].name);
      if (lowered.layouts[i] == graph::Layout::panels) place.together = optimize::panel_columns(place.dtype);
    }
  }

  GeneratedBody write();

 private:
  void emit(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented);
  void emit_loop(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented);
  void emit_instruction(int index, const std::vector<std::string>& outer, const isl::set& implemented);
  struct Header {
    Bounds bounds;
    bool bounded_by_data = false, may_be_empty = false;
  };
  Header emit_header(const NestNode& node, const loop::LoopBounds& bounds, bool may_be_empty);
  void declare_temporaries(const NestNode* loop);
  void store(const Instruction& instruction);
  bool independent(const NestNode& node, bool sums = false) const;
  Level deal_out(const NestNode& node, const std::vector<std::string>& inames);
  void wait_for_reads(const std::set<std::string>& writes);
  void check_names() const;

  // Conditions of instructions that no enclosing loop's bounds have taken care of yet.
  std::vector<Expr>& conditions_of(int instruction) { return conditions_[static_cast<size_t>(instruction)]; }

  Block& block() { return blocks_.back(); }
  void line(std::string text) { block().lines.push_back(std::move(text)); }
  void open(const std::string& iname, const std::vector<int>& instructions);
  void close(const std::string& head);

  const graph::LoweredKernel& lowered_;
  const loop::Kernel& meaning_;
  BodyContext context_;
  ExpressionWriter writer_;
  std::vector<Block> blocks_;
  Hoister hoister_;
  std::vector<std::vector<Expr>> conditions_;
  std::map<std::string, Bounds> tile_bounds_;  // of tiled inames, over the whole domain
};

void instructions_in(const NestNode& node, std::vector<int>& found) {
  if (node.instruction >= 0) found.push_back(node.instruction);
  for (const NestNode& child : node.body) instructions_in(child, found);
}

const char* level_name(Level level) {
  return level == Level::thread ? "thread" : level == Level::warp ? "warp" : "block";
}

std::vector<int> instructions_in(const std::vector<NestNode>& nodes) {
  std::vector<int> found;
  for (const NestNode& node : nodes) instructions_in(node, found);
  return found;
}

bool reads_any(const Expr& expr, const std::set<std::string>& tensors) {
  if (expr.kind == Expr::Kind::subscript && tensors.contains(expr.name)) return true;
  return std::ranges::any_of(expr.args, [&](const Expr& arg) { return reads_any(arg, tensors); });
}

bool has_reduce(const Expr& expr) {
  return expr.kind == Expr::Kind::reduce || std::ranges::any_of(expr.args, has_reduce);
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

void BodyWriter::check_names() const {
  auto check = [&](const std::string& name, const char* what) {
    MEGALITH_CHECK(!is_taken_name(name), "[{}] the {} \"{}\" has a meaning in generated code: give it another name",
                   context_.kernel.name, what, name);
  };
  for (const std::string& iname : context_.kernel.inames()) check(iname, "iname");
  for (const loop::Parameter& parameter : context_.kernel.parameters) check(parameter.name, "size");
  for (const loop::Attribute& attribute : context_.kernel.attributes) check(attribute.name, "attribute");
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
  writer_.set_level(block().level);

  std::vector<std::string> tests = loop::guards(context_.domains.over(instruction.within), implemented);
  bool only_checks = tests.empty();  // that the target is inside: reads need not wait for them
  for (Expr condition : conditions_of(index)) {
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

// Who takes the iterations of a loop. Those of an innermost loop that do not depend on each other are dealt out.
Level BodyWriter::deal_out(const NestNode& node, const std::vector<std::string>& inames) {
  if (block().level != Level::block) return block().level;
  if (std::ranges::any_of(node.body, [](const NestNode& child) { return child.instruction < 0; })) return Level::block;
  for (const NestNode& child : node.body) {
    const Place& place =
        context_.places.of.at(context_.kernel.instructions[static_cast<size_t>(child.instruction)].target.name);
    const bool own = place.depth >= static_cast<int>(inames.size());
    if (place.where == Place::Where::scalar ? !own : place.where == Place::Where::scratch && own) return Level::block;
  }
  if (!independent(node, true)) return Level::block;
  auto sums = [&](const Expr& expr, auto&& self) -> bool {
    if (expr.kind == Expr::Kind::reduce && mentions(expr, node.iname) && writer_.in_lanes(expr)) return true;
    return std::ranges::any_of(expr.args, [&](const Expr& arg) { return self(arg, self); });
  };
  for (const NestNode& child : node.body)
    if (sums(context_.kernel.instructions[static_cast<size_t>(child.instruction)].value, sums)) return Level::warp;
  return Level::thread;
}

// True if no iteration of the loop touches what another one writes: every tensor written in it is written at places
// that move with the iname, and read only where it is written. `sums`: such iterations may be long, with reductions.
bool BodyWriter::independent(const NestNode& node, bool sums) const {
  std::map<std::string, const Expr*> targets;
  for (const NestNode& child : node.body) {
    if (child.instruction < 0) return false;
    const Instruction& instruction = context_.kernel.instructions[static_cast<size_t>(child.instruction)];
    const Expr& target = instruction.target;
    if (!sums && has_reduce(instruction.value)) return false;
    const Place& place = context_.places.of.at(target.name);
    if (place.where == Place::Where::scalar) {
      if (!sums && !place.defined_by_write) return false;
      continue;
    }
    const auto stride = writer_.flat_index(target).coefficient(node.iname);
    if (!stride || *stride == 0) return false;
    const auto [known, fresh] = targets.emplace(target.name, &target);
    if (!fresh && !same_expression(*known->second, target)) {
      // Two places in one tensor, as the two halves of a rotation: apart if they differ by more than the loop is long.
      Linear difference = writer_.flat_index(target).add(writer_.flat_index(*known->second), -1);
      const loop::LoopBounds bounds = loop::loop_bounds(context_.domains.over({node.iname}), node.iname, {});
      int64_t length = 0;
      if (bounds.lower != std::vector<std::string>{"0"} || bounds.upper.size() != 1 || !difference.terms.empty() ||
          fmt::format("{}", length = std::atoll(bounds.upper[0].c_str())) != bounds.upper[0] ||
          std::abs(difference.constant) < length * std::abs(*stride))
        return false;
    }
  }
  auto reads_elsewhere = [&](const Expr& expr, auto&& self) -> bool {
    if (expr.kind == Expr::Kind::subscript)
      if (const auto target = targets.find(expr.name);
          target != targets.end() && !same_expression(*target->second, expr))
        return true;
    return std::ranges::any_of(expr.args, [&](const Expr& arg) { return self(arg, self); });
  };
  for (const NestNode& child : node.body) {
    const Instruction& instruction = context_.kernel.instructions[static_cast<size_t>(child.instruction)];
    if (reads_elsewhere(instruction.value, reads_elsewhere)) return false;
    if (instruction.condition && reads_elsewhere(*instruction.condition, reads_elsewhere)) return false;
  }
  return true;
}

// "i64 k = ...; k < ...": isl's bounds, the tile's, and conditions that all instructions below share.
BodyWriter::Header BodyWriter::emit_header(const NestNode& node, const loop::LoopBounds& bounds, bool may_be_empty) {
  const std::string& iname = node.iname;
  Header header;
  header.may_be_empty = may_be_empty;
  std::vector<std::string> lower = bounds.lower, upper = bounds.upper;
  if (const auto tile = tile_bounds_.find(iname); tile != tile_bounds_.end()) {
    // The task's range was clamped to the iname's own bounds already (see arguments.h).
    std::erase(lower, tile->second.lower);
    std::erase(upper, tile->second.upper);
    // A task has some of the iname's values, but other bounds may leave it none of them.
    header.may_be_empty = header.may_be_empty || !lower.empty() || !upper.empty();
    lower.insert(lower.begin(), iname + "_begin");
    upper.insert(upper.begin(), iname + "_end");
  }

  const std::vector<int> below = instructions_in({node});
  std::set<std::string> written;
  for (const int index : below) written.insert(context_.kernel.instructions[static_cast<size_t>(index)].target.name);
  const std::vector<Expr> candidates = conditions_of(below.front());
  for (const Expr& condition : candidates) {
    auto has_it = [&](int index) {
      return std::ranges::any_of(conditions_of(index), [&](const Expr& c) { return same_expression(c, condition); });
    };
    if (!std::ranges::all_of(below, has_it) || reads_any(condition, written)) continue;
    Expr hoisted = condition;
    const auto bound = condition_bound(condition, iname);
    if (!bound) continue;
    // It must be known where the loop begins: no inames of loops inside.
    auto inner = [&](const NestNode& child, auto&& self) -> bool {
      return std::ranges::any_of(child.body, [&](const NestNode& c) {
        return (!c.iname.empty() && mentions(condition, c.iname)) || self(c, self);
      });
    };
    if (inner(node, inner)) continue;
    // A check may move to where the loop begins only if nothing is tested before it.
    const Instruction& first = context_.kernel.instructions[static_cast<size_t>(below.front())];
    if (has_check(condition) && (header.may_be_empty || !same_expression(condition, conjuncts(*first.condition)[0])))
      continue;
    hoister_.hoist_reads(hoisted);
    const auto named = condition_bound(hoisted, iname);
    (named->is_upper ? upper : lower).push_back(writer_.write(*named));
    header.bounded_by_data = header.bounded_by_data || reads_tensor(condition);
    header.may_be_empty = true;
    for (const int index : below)
      std::erase_if(conditions_of(index), [&](const Expr& c) { return same_expression(c, condition); });
  }
  header.bounds = {join_bounds(lower, "max"), join_bounds(upper, "min")};
  return header;
}

void BodyWriter::emit_loop(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented) {
  const loop::LoopBounds bounds =
      loop::loop_bounds(loop::loop_domain(context_.domains, context_.kernel, node, outer), node.iname, outer);
  const isl::set inside = loop::enter_loop(implemented, bounds);
  const Header header = emit_header(node, bounds, loop::may_be_empty(inside, implemented));
  const auto& [lower, upper] = header.bounds;
  std::vector<std::string> inames = outer;
  inames.push_back(node.iname);

  if (context_.dialect.worker == Level::thread && node.body.size() == 1 && node.body[0].instruction >= 0 &&
      conditions_of(node.body[0].instruction).empty()) {
    const int index = node.body[0].instruction;
    Instruction instruction = context_.kernel.instructions[static_cast<size_t>(index)];
    writer_.set_scope(inames);
    if (loop::guards(context_.domains.over(instruction.within), inside).empty() &&
        !(header.may_be_empty && has_check(instruction.value)) &&
        sums_columns(context_, writer_, instruction, node.iname)) {
      line(comment_of(meaning_.instructions[static_cast<size_t>(index)]));
      // The loop itself is inside the helper, so nothing that depends on its iname can be named.
      for (Expr& arg : instruction.target.args) hoister_.hoist(arg, {node.iname});
      hoister_.hoist(instruction.value, {node.iname});
      line(write_columns(context_, writer_, instruction, node.iname, {lower, upper}));
      hoister_.forget(instruction.target.name);
      return;
    }
  }

  const Level around = block().level, level = deal_out(node, inames);
  open(node.iname, instructions_in({node}));
  block().level = level;
  block().guarded = header.bounded_by_data;
  block().may_be_empty = header.may_be_empty;
  declare_temporaries(&node);
  for (const NestNode& child : node.body) emit(child, inames, inside);
  const bool ivdep = !context_.dialect.independent.empty() && independent(node);
  const std::vector<std::string> lines = std::move(block().lines);
  const std::set<std::string> writes = block().writes;
  blocks_.pop_back();
  if (ivdep) line(context_.dialect.independent);
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
  check_names();
  for (const Instruction& instruction : context_.kernel.instructions)
    conditions_.push_back(instruction.condition ? conjuncts(*instruction.condition) : std::vector<Expr>{});
  for (const std::string& iname : lowered_.tiled) {
    const loop::LoopBounds bounds = loop::loop_bounds(context_.domains.over({iname}), iname, {});
    tile_bounds_[iname] = {join_bounds(bounds.lower, "max"), join_bounds(bounds.upper, "min")};
  }

  open("", instructions_in(context_.nest));
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
  loop::Kernel checked = bound;
  std::vector<CheckText> checks = add_checks(checked);
  GeneratedBody body = BodyWriter(lowered, checked, bound, dialect).write();
  body.checks = std::move(checks);
  return body;
}

}  // namespace megalith::codegen
