#include "megalith/loop/linear_sum.h"

#include <cstdlib>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

int64_t added(int64_t to, int64_t a, int64_t b) {
  int64_t product = 0, sum = 0;
  MEGALITH_CHECK(!__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(to, product, &sum),
                 "numbers in a subscript are too large");
  return sum;
}

void LinearSum::add(const LinearSum& other, int64_t factor) {
  constant = added(constant, factor, other.constant);
  for (const auto& [text, term] : other.terms) {
    auto& own = terms.try_emplace(text, 0, term.second).first->second;
    own.first = added(own.first, factor, term.first);
  }
  std::erase_if(terms, [](const auto& entry) { return entry.second.first == 0; });
}

int64_t LinearSum::coefficient(const std::string& name) const {
  const auto found = terms.find(name);
  return found == terms.end() ? 0 : found->second.first;
}

LinearSum sum_of(const Expr& expr) {
  LinearSum result;
  if (expr.kind == Expr::Kind::number && expr.is_integer) {
    result.constant = static_cast<int64_t>(expr.number);
    return result;
  }
  if (expr.kind == Expr::Kind::call && (expr.name == "+" || expr.name == "-")) {
    result.add(sum_of(expr.args[0]), 1);
    result.add(sum_of(expr.args[1]), expr.name == "+" ? 1 : -1);
    return result;
  }
  if (expr.kind == Expr::Kind::call && expr.name == "neg") {
    result.add(sum_of(expr.args[0]), -1);
    return result;
  }
  if (expr.kind == Expr::Kind::call && expr.name == "*")
    for (size_t side : {0u, 1u})
      if (const auto number = constant_value(expr.args[side])) {
        result.add(sum_of(expr.args[1 - side]), *number);
        return result;
      }
  result.terms.try_emplace(print(expr), 1, expr);
  return result;
}

Expr expression_of(const LinearSum& sum) {
  Expr result;
  bool is_empty = true;
  const auto add = [&](const Expr& term, bool negative) {
    if (is_empty)
      result = negative ? make_call("neg", {term}) : term;
    else
      result = make_call(negative ? "-" : "+", {std::move(result), term});
    is_empty = false;
  };
  for (const auto& [text, term] : sum.terms) {
    const int64_t size = std::abs(term.first);
    add(size == 1 ? term.second : make_call("*", {make_integer(size), term.second}), term.first < 0);
  }
  if (sum.constant != 0 || is_empty) add(make_integer(std::abs(sum.constant)), sum.constant < 0);
  return result;
}

}  // namespace megalith::loop
