// nest_reduction, accumulate
#include <algorithm>
#include <limits>

#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

bool runs_over_all(const Expr& expr, const std::vector<std::string>& inames) {
  return expr.kind == Expr::Kind::reduce &&
         std::ranges::all_of(inames, [&](const std::string& iname) { return is_among(expr.inames, iname); });
}

Expr neutral_of(ReduceOp op) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (op == ReduceOp::sum) return make_number(0);
  if (op == ReduceOp::min) return make_number(kInfinity);
  return make_call("neg", {make_number(kInfinity)});
}

Expr combined(ReduceOp op, Expr a, Expr b) {
  const char* name = op == ReduceOp::sum ? "+" : op == ReduceOp::max ? "max" : "min";
  return make_call(name, {std::move(a), std::move(b)});
}

std::string free_id(const Kernel& kernel, const std::string& wanted) {
  std::set<std::string> ids;
  for (const Instruction& other : kernel.instructions) ids.insert(other.id);
  std::string id = wanted;
  while (ids.contains(id)) id += "_";
  return id;
}

// The one reduction over all of `inames`, and the instruction that it is in.
std::pair<size_t, Expr*> find_reduction(Kernel& kernel, const std::vector<std::string>& inames) {
  std::pair<size_t, Expr*> found{0, nullptr};
  for (const std::string& iname : inames) check_has_iname(kernel, iname);
  for (size_t i = 0; i < kernel.instructions.size(); ++i)
    for_each_expression(kernel.instructions[i], [&](Expr& expr) {
      if (!runs_over_all(expr, inames)) return;
      if (found.second)
        refuse(kernel, "two reductions run over {}: duplicate it in one of them", fmt::join(inames, ", "));
      found = {i, &expr};
    });
  if (!found.second) refuse(kernel, "no reduction runs over {}", fmt::join(inames, ", "));
  if (found.second->reduce == ReduceOp::argmax)
    refuse(kernel, "{} cannot be split: an argmax is no sum", print(*found.second));
  return found;
}

}  // namespace

Kernel nest_reduction(const Kernel& kernel, const std::vector<std::string>& inames, bool outward) {
  Kernel result = kernel;
  Expr& reduce = *find_reduction(result, inames).second;
  if (reduce.inames.size() == inames.size()) refuse(kernel, "{} runs over nothing else", print(reduce));
  Expr inner = reduce;
  const auto is_named = [&](const std::string& iname) { return is_among(inames, iname); };
  const auto is_inner = [&](const std::string& iname) { return is_named(iname) != outward; };
  std::erase_if(inner.inames, [&](const std::string& iname) { return !is_inner(iname); });
  std::erase_if(reduce.inames, is_inner);
  reduce.args = {std::move(inner)};  // the condition holds inside
  return finished(std::move(result));
}

Kernel accumulate(const Kernel& kernel, const std::vector<std::string>& inames, const std::string& sum) {
  check_is_free(kernel, sum);
  Kernel result = kernel;
  const auto [at, found] = find_reduction(result, inames);
  const Expr reduce = *found;
  const Instruction whole = result.instructions[at];
  Expr value = reduce;
  for_each_expression(value, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && expr.name == whole.target.name)
      refuse(kernel, "{} reads {}, which {} writes", print(reduce), whole.target.name, whole.id);
  });
  // What stands inside of `if` or of another reduction is not there for each point of the instruction.
  int depth = 0;
  const std::function<void(const Expr&, int)> look = [&](const Expr& expr, int level) {
    if (same_expression(expr, reduce)) depth = std::max(depth, level);
    const bool hides = expr.kind == Expr::Kind::reduce || (expr.kind == Expr::Kind::call && expr.name == "if");
    for (const Expr& arg : expr.args) look(arg, level + (hides ? 1 : 0));
  };
  look(whole.value, 0);
  if (depth > 0 || (whole.condition && runs_over_all(*whole.condition, inames)))
    refuse(kernel, "{} stands inside of a condition or of another reduction", print(reduce));

  // Loops around the accumulation keep one sum at a time; those inside keep one each.
  const std::vector<std::string> order = kernel.inames();
  const auto first = std::ranges::find_if(order, [&](const std::string& iname) { return is_among(inames, iname); });
  Expr element;
  element.kind = Expr::Kind::subscript;
  element.name = sum;
  for (auto iname = first; iname != order.end(); ++iname)
    if (is_among(whole.within, *iname)) element.args.push_back(make_name(*iname));
  if (element.args.empty()) element.args.push_back(make_integer(0));

  std::erase_if(value.inames, [&](const std::string& iname) { return is_among(inames, iname); });
  if (value.inames.empty()) {
    Expr term = value.args[0];
    if (value.args.size() == 2) term = make_call("if", {value.args[1], std::move(term), neutral_of(reduce.reduce)});
    value = std::move(term);
  }
  Instruction start = whole, step = whole;
  start.id = free_id(result, sum + "_start");
  start.target = element;
  start.value = neutral_of(reduce.reduce);
  step.id = free_id(result, sum + "_step");
  step.target = element;
  step.value = combined(reduce.reduce, element, std::move(value));
  step.within.insert(step.within.end(), inames.begin(), inames.end());
  step.depends_on.push_back(start.id);
  Instruction& end = result.instructions[at];
  *found = element;
  end.depends_on.push_back(step.id);
  result.instructions.insert(result.instructions.begin() + static_cast<std::ptrdiff_t>(at), {start, step});
  result.tensors.push_back(
      {.name = sum, .role = Role::temporary, .dtype = reduce.dtype, .shape = {}, .shape_known = false});
  return finished(std::move(result));
}

}  // namespace megalith::loop
