#include "megalith/codegen/condition_bound.h"

namespace megalith::codegen {

using loop::Expr;
using loop::LinearSum;

std::optional<ConditionBound> condition_bound(const Expr& condition, const std::string& iname) {
  if (condition.kind != Expr::Kind::call || condition.args.size() != 2) return std::nullopt;
  std::string op = condition.name;
  if (op != "<" && op != "<=" && op != ">" && op != ">=") return std::nullopt;
  LinearSum difference = loop::sum_of(condition.args[0]).add(loop::sum_of(condition.args[1]), -1);
  const std::optional<int64_t> found = difference.coefficient(iname);
  if (!found || *found == 0) return std::nullopt;
  int64_t coefficient = *found;
  difference = difference.without(iname);  // coefficient * iname + difference <op> 0
  if (coefficient < 0) {
    coefficient = -coefficient;
    LinearSum negated;
    difference = negated.add(difference, -1);
    op[0] = op[0] == '<' ? '>' : '<';
  }
  ConditionBound result;
  result.is_upper = op[0] == '<';
  result.divisor = coefficient;
  result.bound.add(difference, -1);
  // c i <= b: i < floor(b / c) + 1.   c i < b: c i <= b - 1.   c i > b: i >= floor(b / c) + 1.   c i >= b: c i > b - 1.
  result.offset = 1;
  if (op == "<" || op == ">=") result.bound.constant -= 1;
  if (coefficient == 1) {
    result.bound.constant += 1;
    result.offset = 0;
  }
  return result;
}

std::vector<Expr> conjuncts(const Expr& condition) {
  if (condition.kind != Expr::Kind::call || condition.name != "and") return {condition};
  std::vector<Expr> result = conjuncts(condition.args[0]);
  for (Expr& right : conjuncts(condition.args[1])) result.push_back(std::move(right));
  return result;
}

}  // namespace megalith::codegen
