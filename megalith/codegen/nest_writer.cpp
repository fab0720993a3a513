#include "megalith/codegen/nest_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/codegen/checks.h"
#include "megalith/loop/lex.h"

namespace megalith::codegen {

using loop::Expr;
using loop::Instruction;
using loop::NestNode;

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

void NestWriter::open(std::string head, std::set<std::string> writes, std::string iname) {
  Block block;
  block.head = std::move(head);
  block.iname = std::move(iname);
  block.writes = std::move(writes);
  block.level = blocks_.empty() ? context_.dialect.worker : blocks_.back().level;
  blocks_.push_back(std::move(block));
}

void NestWriter::open_else() {
  MEGALITH_ASSERT(!block().lines.empty() && block().lines.back() == "}", "nothing stands before an else");
  block().lines.pop_back();
  open("} else");
}

void NestWriter::close() {
  const Block done = std::move(block());
  blocks_.pop_back();
  line(done.head.empty() ? "{" : done.head + " {");
  append_indented(block().lines, done.lines);
  line("}");
}

void NestWriter::write_loop(const NestNode& node, const Bounds& bounds, const std::function<void()>& body) {
  std::set<std::string> writes;
  for (const int index : instructions_in(node)) writes.insert(instruction(index).target.name);
  open("", std::move(writes), node.iname);
  body();
  const Block done = std::move(block());
  blocks_.pop_back();
  if (std::string pragma = pragma_of(node); !pragma.empty()) line(std::move(pragma));
  end_loop(node, bounds, done);
}

void NestWriter::end_loop(const NestNode& node, const Bounds& bounds, const Block& done) {
  line(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0}) {{", node.iname, bounds.lower, bounds.upper));
  append_indented(block().lines, done.lines);
  line("}");
}

void NestWriter::emit(std::span<const NestNode> nodes, const Inames& outer, const isl::set& implemented) {
  for (const NestNode& node : nodes) emit_node(node, outer, implemented);
}

void NestWriter::emit_node(const NestNode& node, const Inames& outer, const isl::set& implemented) {
  if (!node.iname.empty())
    emit_loop(node, outer, implemented);
  else if (node.instruction >= 0)
    emit_instruction(node.instruction, outer, implemented);
  else
    write_barrier(node.is_warp_barrier);
}

// "i64 k = ...; k < ...".
Bounds NestWriter::bounds_text(const NestNode& node, const LoopHeader& header) {
  std::vector<std::string> lower = header.lower, upper = header.upper;
  if (!header.conditions.empty()) writer_.set_instruction(instructions_in(node).front());
  for (Expr condition : header.conditions) {
    name_reads(condition);
    const auto bound = condition_bound(condition, node.iname);
    (bound->is_upper ? upper : lower).push_back(writer_.write(*bound));
  }
  return {join_bounds(lower, "max"), join_bounds(upper, "min")};
}

void NestWriter::emit_loop(const NestNode& node, const Inames& outer, const isl::set& implemented) {
  const LoopHeader header = headers_.enter(node, outer, implemented, form_of(node));
  const Bounds bounds = bounds_text(node, header);
  Inames inames = outer;
  inames.push_back(node.iname);
  if (emit_at_once(node, header, bounds, inames)) return;
  write_loop(node, bounds, [&] {
    begin_loop(node, header);
    emit(node.body, inames, header.inside);
  });
}

void NestWriter::emit_instruction(int index, const Inames& outer, const isl::set& implemented) {
  Instruction statement = instruction(index);  // whose parts get names
  writer_.set_scope(outer);
  writer_.set_instruction(index);
  begin_statement(index);

  const isl::set wanted = context_.domains.over(statement.within);
  std::vector<std::string> tests = loop::guards(wanted, implemented);
  const isl::set done = tests.empty() ? implemented : implemented.intersect(wanted.gist(implemented));
  MEGALITH_ASSERT(done.is_equal(wanted), "{} instruction \"{}\": loops and conditions do not run its domain",
                  loop::message_prefix(context_.kernel.name), statement.id);
  const std::vector<std::string> more = more_tests(index);
  tests.insert(tests.end(), more.begin(), more.end());
  bool only_checks = tests.empty();  // that the target is inside: reads need not wait for them
  for (Expr condition : headers_.conditions_of(index)) {
    only_checks = only_checks && is_check_of_target(condition);
    // What is tested behind other tests is evaluated behind them.
    name_parts(condition, has_check(condition) && !tests.empty() && !only_checks);
    tests.push_back(writer_.write(condition, Type::truth, 4));
  }
  if (!tests.empty()) {
    begin_guarded(statement);
    open(fmt::format("if ({})", fmt::join(tests, " && ")), {statement.target.name});
    block().strict = !only_checks;
  }
  // Subscripts within the target are part of the address: only what they read is worth a name.
  for (Expr& arg : statement.target.args) name_parts(arg, false);
  name_parts(statement.value, false);
  store(statement);
  if (!tests.empty()) close();
  end_statement(index);
}

}  // namespace megalith::codegen
