#include "megalith/codegen/linear.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"

namespace megalith::codegen {

using loop::Expr;

Linear& Linear::add(const Linear& other, int64_t factor) {
  constant += factor * other.constant;
  for (const Term& term : other.terms) {
    const auto same = std::ranges::find_if(terms, [&](const Term& t) { return same_expression(t.atom, term.atom); });
    if (same == terms.end())
      terms.push_back({term.atom, factor * term.coefficient});
    else
      same->coefficient += factor * term.coefficient;
  }
  std::erase_if(terms, [](const Term& term) { return term.coefficient == 0; });
  return *this;
}

Linear Linear::times(const Expr& size) const {
  Linear result;
  if (const auto number = loop::constant_value(size)) return result.add(*this, *number);
  if (terms.empty() && constant == 0) return result;
  result.terms.push_back({loop::make_call("*", {expression_of(*this), size}), 1});
  return result;
}

std::optional<int64_t> Linear::coefficient(const std::string& iname) const {
  int64_t result = 0;
  for (const Term& term : terms) {
    if (!mentions(term.atom, iname)) continue;
    if (term.atom.kind != Expr::Kind::name) return std::nullopt;
    result = term.coefficient;
  }
  return result;
}

Linear Linear::without(const std::string& iname) const {
  Linear result = *this;
  std::erase_if(result.terms, [&](const Term& t) { return t.atom.kind == Expr::Kind::name && t.atom.name == iname; });
  return result;
}

Linear linear_of(const Expr& expr) {
  Linear result;
  if (expr.kind == Expr::Kind::number && expr.is_integer) {
    result.constant = static_cast<int64_t>(expr.number);
    return result;
  }
  if (expr.kind == Expr::Kind::call) {
    if (expr.name == "+") return linear_of(expr.args[0]).add(linear_of(expr.args[1]));
    if (expr.name == "-") return linear_of(expr.args[0]).add(linear_of(expr.args[1]), -1);
    if (expr.name == "neg") return result.add(linear_of(expr.args[0]), -1);
    if (expr.name == "*") {
      const Linear left = linear_of(expr.args[0]), right = linear_of(expr.args[1]);
      if (left.terms.empty()) return result.add(right, left.constant);
      if (right.terms.empty()) return result.add(left, right.constant);
    }
  }
  result.terms.push_back({expr, 1});
  return result;
}

Expr expression_of(const Linear& linear) {
  std::optional<Expr> result;
  for (const Linear::Term& term : linear.terms) {
    Expr value =
        term.coefficient == 1 ? term.atom : loop::make_call("*", {loop::make_integer(term.coefficient), term.atom});
    result = result ? loop::make_call("+", {std::move(*result), std::move(value)}) : std::move(value);
  }
  if (!result) return loop::make_integer(linear.constant);
  if (linear.constant == 0) return *result;
  return loop::make_call("+", {std::move(*result), loop::make_integer(linear.constant)});
}

int64_t integer_value(const Expr& expr, const std::map<std::string, int64_t>& sizes) {
  const Linear linear = linear_of(expr);
  int64_t result = linear.constant;
  for (const Linear::Term& term : linear.terms) {
    const Expr& atom = term.atom;
    if (atom.kind == Expr::Kind::name) {
      const auto size = sizes.find(atom.name);
      MEGALITH_ASSERT(size != sizes.end(), "the size {} has no value", atom.name);
      result += term.coefficient * size->second;
      continue;
    }
    MEGALITH_ASSERT(atom.kind == Expr::Kind::call && atom.args.size() == 2, "not a whole number");
    const int64_t a = integer_value(atom.args[0], sizes), b = integer_value(atom.args[1], sizes);
    if (atom.name == "*") {
      result += term.coefficient * a * b;
      continue;
    }
    MEGALITH_ASSERT((atom.name == "//" || atom.name == "mod") && b > 0, "not a whole number");
    const int64_t quotient = a / b - (a % b < 0);
    result += term.coefficient * (atom.name == "//" ? quotient : a - quotient * b);
  }
  return result;
}

std::optional<ConditionBound> condition_bound(const Expr& condition, const std::string& iname) {
  if (condition.kind != Expr::Kind::call || condition.args.size() != 2) return std::nullopt;
  std::string op = condition.name;
  if (op != "<" && op != "<=" && op != ">" && op != ">=") return std::nullopt;
  Linear difference = linear_of(condition.args[0]).add(linear_of(condition.args[1]), -1);
  const std::optional<int64_t> found = difference.coefficient(iname);
  if (!found || *found == 0) return std::nullopt;
  int64_t coefficient = *found;
  difference = difference.without(iname);  // coefficient * iname + difference <op> 0
  if (coefficient < 0) {
    coefficient = -coefficient;
    Linear negated;
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
