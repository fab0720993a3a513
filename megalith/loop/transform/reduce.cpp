// nest_reduction, accumulate
#include <algorithm>

#include "megalith/loop/text.h"
#include "megalith/loop/transform/reduction.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

Kernel nest_reduction(const Kernel& kernel, const std::vector<std::string>& inames, bool outward) {
  Kernel result = kernel;
  Expr& reduce = *find_sum(result, inames).expr;
  if (reduce.inames.size() == inames.size()) refuse(kernel, "{} runs over nothing else", print(reduce));
  Expr inner = reduce;
  const auto is_named = [&](const std::string& iname) { return is_among(inames, iname); };
  const auto is_inner = [&](const std::string& iname) { return is_named(iname) != outward; };
  std::erase_if(inner.inames, [&](const std::string& iname) { return !is_inner(iname); });
  std::erase_if(reduce.inames, is_inner);
  reduce.args = {std::move(inner)};  // the condition holds inside
  return finished(std::move(result));
}

Kernel accumulated(const Kernel& kernel, Kernel result, size_t at, Expr* found, const std::vector<std::string>& inames,
                   const std::string& sum) {
  const Expr reduce = *found;
  const Instruction whole = result.instructions[at];
  check_can_leave(kernel, whole, reduce);

  // Loops around the accumulation keep one sum at a time; those inside keep one each.
  const std::vector<std::string> order = kernel.inames();
  const auto first = std::ranges::find_if(order, [&](const std::string& iname) { return is_among(inames, iname); });
  Expr element;
  element.kind = Expr::Kind::subscript;
  element.name = sum;
  for (auto iname = first; iname != order.end(); ++iname)
    if (is_among(whole.within, *iname)) element.args.push_back(make_name(*iname));
  if (element.args.empty()) element.args.push_back(make_integer(0));

  Instruction start = whole, step = whole;
  start.unordered.clear();
  step.unordered.clear();
  start.id = free_id(result, sum + "_start");
  start.target = element;
  start.value = neutral_of(reduce);
  step.id = free_id(result, sum + "_step");
  step.target = element;
  step.value = combined(reduce.reduce, element, without_inames(reduce, inames));
  step.within.insert(step.within.end(), inames.begin(), inames.end());
  step.depends_on.push_back(start.id);
  Instruction& end = result.instructions[at];
  *found = element;
  end.depends_on.push_back(step.id);
  insert_instructions(result, at, {start, step});
  result.tensors.push_back(
      {.name = sum, .role = Role::temporary, .dtype = reduce.dtype, .shape = {}, .shape_known = false});
  const bool is_inside =
      std::ranges::any_of(element.args, [](const Expr& arg) { return arg.kind == Expr::Kind::name; });
  result = finished(std::move(result));
  if (is_inside) check_reads_kept(kernel, at, result, step.id);
  return result;
}

Kernel accumulate(const Kernel& kernel, const std::vector<std::string>& inames, const std::string& sum) {
  check_is_free(kernel, sum);
  Kernel result = kernel;
  const auto [at, found] = find_sum(result, inames);
  return accumulated(kernel, std::move(result), at, found, inames, sum);
}

}  // namespace megalith::loop
