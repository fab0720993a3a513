#include "megalith/loop/transform/reduction.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "megalith/loop/instance.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"

namespace megalith::loop {

namespace {

bool runs_over_all(const Expr& expr, const std::vector<std::string>& inames) {
  return expr.kind == Expr::Kind::reduce &&
         std::ranges::all_of(inames, [&](const std::string& iname) { return is_among(expr.inames, iname); });
}

bool has_inside(const Expr& expr, const Expr& reduce) {
  return same_expression(expr, reduce) ||
         std::ranges::any_of(expr.args, [&](const Expr& arg) { return has_inside(arg, reduce); });
}

// What stands there is not evaluated at each point of the instruction.
bool is_hidden(const Expr& expr, const Expr& reduce, bool in_hiding) {
  if (same_expression(expr, reduce)) return in_hiding;
  const bool hides = in_hiding || expr.kind == Expr::Kind::reduce ||
                     (expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or"));
  return std::ranges::any_of(expr.args, [&](const Expr& arg) { return is_hidden(arg, reduce, hides); });
}

}  // namespace

FoundReduction find_reduction(Kernel& kernel, const std::vector<std::string>& inames) {
  FoundReduction found;
  for (const std::string& iname : inames) check_has_iname(kernel, iname);
  for (size_t i = 0; i < kernel.instructions.size(); ++i)
    for_each_expression(kernel.instructions[i], [&](Expr& expr) {
      if (!runs_over_all(expr, inames)) return;
      if (found.expr)
        refuse(kernel, "two reductions run over {}: duplicate it in one of them", fmt::join(inames, ", "));
      found = {i, &expr};
    });
  if (!found.expr) refuse(kernel, "no reduction runs over {}", fmt::join(inames, ", "));
  return found;
}

FoundReduction find_sum(Kernel& kernel, const std::vector<std::string>& inames) {
  const FoundReduction found = find_reduction(kernel, inames);
  if (found.expr->reduce == ReduceOp::argmax)
    refuse(kernel, "{} cannot be split: an argmax is no sum", print(*found.expr));
  return found;
}

void check_can_leave(const Kernel& kernel, const Instruction& instruction, const Expr& reduce) {
  Expr copy = reduce;
  for_each_expression(copy, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && expr.name == instruction.target.name)
      refuse(kernel, "{} reads {}, which {} writes", print(reduce), instruction.target.name, instruction.id);
  });
  if (is_hidden(instruction.value, reduce, false) ||
      (instruction.condition && has_inside(*instruction.condition, reduce)))
    refuse(kernel, "{} stands inside of a condition or of another reduction", print(reduce));
}

Expr neutral_of(const Expr& reduce) {
  const DType dtype = reduce.reduce == ReduceOp::argmax ? reduce.args[0].dtype : reduce.dtype;
  const bool is_whole = !dtype_is_float(dtype);
  if (reduce.reduce == ReduceOp::sum) return is_whole ? make_integer(0) : make_number(0);
  Expr most = make_number(std::numeric_limits<double>::infinity());
  if (reduce.reduce != ReduceOp::min) most = make_call("neg", {std::move(most)});
  return is_whole ? make_call(std::string(dtype_name(dtype)), {std::move(most)}) : most;
}

void check_reads_kept(const Kernel& before, size_t instruction, const Kernel& after, const std::string& id) {
  constexpr const char* kHint = "order the loops such that those of the reduction are inside";
  check_order_kept(before, after, {}, kHint);
  Kernel moved = before;
  moved.instructions[instruction].id = id;
  check_order_kept(moved, after, {}, kHint);
}

Expr combined(ReduceOp op, Expr a, Expr b) {
  const char* name = op == ReduceOp::sum ? "+" : op == ReduceOp::min ? "min" : "max";
  return make_call(name, {std::move(a), std::move(b)});
}

Expr without_inames(const Expr& reduce, const std::vector<std::string>& inames) {
  Expr value = reduce;
  std::erase_if(value.inames, [&](const std::string& iname) { return is_among(inames, iname); });
  if (!value.inames.empty()) return value;
  Expr term = reduce.args[0];
  if (reduce.args.size() == 2) term = make_call("if", {reduce.args[1], std::move(term), neutral_of(reduce)});
  return term;
}

std::string free_id(const Kernel& kernel, const std::string& wanted) {
  std::string id = wanted;
  while (std::ranges::find(kernel.instructions, id, &Instruction::id) != kernel.instructions.end()) id += "_";
  return id;
}

}  // namespace megalith::loop
