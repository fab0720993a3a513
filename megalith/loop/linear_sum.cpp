#include "megalith/loop/linear_sum.h"

#include <algorithm>
#include <cstdlib>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

Expr joined(const std::vector<LinearSum::Term>& terms, int64_t constant) {
  Expr result;
  bool is_empty = true;
  const auto add = [&](const Expr& term, bool negative) {
    if (is_empty)
      result = negative ? make_call("neg", {term}) : term;
    else
      result = make_call(negative ? "-" : "+", {std::move(result), term});
    is_empty = false;
  };
  for (const auto& [atom, coefficient] : terms) {
    const int64_t size = std::abs(coefficient);
    add(size == 1 ? atom : make_call("*", {make_integer(size), atom}), coefficient < 0);
  }
  if (constant != 0 || is_empty) add(make_integer(std::abs(constant)), constant < 0);
  return result;
}

}  // namespace

int64_t added(int64_t to, int64_t a, int64_t b) {
  int64_t product = 0, sum = 0;
  MEGALITH_CHECK(!__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(to, product, &sum),
                 "numbers in a subscript are too large");
  return sum;
}

LinearSum& LinearSum::add(const LinearSum& other, int64_t factor) {
  constant = added(constant, factor, other.constant);
  for (const Term& term : other.terms) {
    const auto same = std::ranges::find_if(terms, [&](const Term& t) { return same_expression(t.atom, term.atom); });
    if (same == terms.end())
      terms.push_back({term.atom, added(0, factor, term.coefficient)});
    else
      same->coefficient = added(same->coefficient, factor, term.coefficient);
  }
  std::erase_if(terms, [](const Term& term) { return term.coefficient == 0; });
  return *this;
}

LinearSum LinearSum::times(const Expr& size, bool nests) const {
  LinearSum result;
  const auto number = constant_value(size);
  if (number && (!nests || terms.size() < 2)) return result.add(*this, *number);
  if (terms.empty() && constant == 0) return result;
  result.terms.push_back({make_call("*", {joined(terms, constant), size}), 1});
  return result;
}

std::optional<int64_t> LinearSum::coefficient(const std::string& iname) const {
  int64_t result = 0;
  for (const Term& term : terms) {
    if (!mentions(term.atom, iname)) continue;
    if (term.atom.kind != Expr::Kind::name) return std::nullopt;
    result = term.coefficient;
  }
  return result;
}

LinearSum LinearSum::without(const std::string& iname) const {
  LinearSum result = *this;
  std::erase_if(result.terms, [&](const Term& t) { return t.atom.kind == Expr::Kind::name && t.atom.name == iname; });
  return result;
}

LinearSum sum_of(const Expr& expr) {
  LinearSum result;
  if (expr.kind == Expr::Kind::number && expr.is_integer) {
    result.constant = static_cast<int64_t>(expr.number);
    return result;
  }
  if (expr.kind == Expr::Kind::call) {
    if (expr.name == "+") return sum_of(expr.args[0]).add(sum_of(expr.args[1]));
    if (expr.name == "-") return sum_of(expr.args[0]).add(sum_of(expr.args[1]), -1);
    if (expr.name == "neg") return result.add(sum_of(expr.args[0]), -1);
    if (expr.name == "*") {
      const LinearSum left = sum_of(expr.args[0]), right = sum_of(expr.args[1]);
      if (left.terms.empty()) return result.add(right, left.constant);
      if (right.terms.empty()) return result.add(left, right.constant);
    }
  }
  result.terms.push_back({expr, 1});
  return result;
}

Expr expression_of(const LinearSum& sum) {
  std::vector<LinearSum::Term> terms = sum.terms;
  std::ranges::sort(terms, {}, [](const LinearSum::Term& term) { return print(term.atom); });
  return joined(terms, sum.constant);
}

int64_t integer_value(const Expr& expr, const std::map<std::string, int64_t>& sizes) {
  const LinearSum linear = sum_of(expr);
  int64_t result = linear.constant;
  for (const LinearSum::Term& term : linear.terms) {
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

}  // namespace megalith::loop
