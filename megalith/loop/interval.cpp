#include "megalith/loop/interval.h"

#include <algorithm>

#include "megalith/loop/affine.h"
#include "megalith/loop/domain.h"

namespace megalith::loop {

namespace {

void add_scaled(IntervalForm& sum, const IntervalForm& form, int64_t factor) {
  sum.constant += factor * form.constant;
  for (IntervalForm::Term term : form.terms) {
    term.coefficient *= factor;
    const auto same = std::ranges::find_if(
        sum.terms, [&](const IntervalForm::Term& t) { return t.variable >= 0 && t.variable == term.variable; });
    if (same != sum.terms.end())
      same->coefficient += term.coefficient;
    else
      sum.terms.push_back(std::move(term));
  }
  std::erase_if(sum.terms, [](const IntervalForm::Term& term) { return term.coefficient == 0; });
}

std::optional<IntervalForm> read(const Expr& expr, std::span<const std::string> inames) {
  if (const auto value = constant_value(expr)) return IntervalForm{*value, {}};
  IntervalForm result;
  if (expr.kind == Expr::Kind::name) {
    const auto found = std::ranges::find(inames, expr.name);
    if (found == inames.end()) return std::nullopt;
    result.terms.push_back({1, static_cast<int>(found - inames.begin()), {}, 1, false});
    return result;
  }
  if (expr.kind != Expr::Kind::call) return std::nullopt;
  if (expr.name == "+" || expr.name == "-" || expr.name == "neg") {
    for (size_t i = 0; i < expr.args.size(); ++i) {
      const auto part = read(expr.args[i], inames);
      if (!part) return std::nullopt;
      add_scaled(result, *part, expr.name == "+" || (expr.name == "-" && i == 0) ? 1 : -1);
    }
    return result;
  }
  if (expr.name == "*") {
    for (const size_t side : {size_t{0}, size_t{1}})
      if (const auto factor = constant_value(expr.args[side])) {
        const auto other = read(expr.args[1 - side], inames);
        if (!other) return std::nullopt;
        add_scaled(result, *other, *factor);
        return result;
      }
    return std::nullopt;
  }
  if (expr.name == "//" || expr.name == "mod") {
    const auto divisor = constant_value(expr.args[1]);
    const auto argument = read(expr.args[0], inames);
    if (!divisor || *divisor <= 0 || !argument) return std::nullopt;
    result.terms.push_back({1, -1, std::make_shared<IntervalForm>(*argument), *divisor, expr.name == "mod"});
    return result;
  }
  return std::nullopt;
}

void collect_variables(const IntervalForm& form, std::vector<int>& variables) {
  for (const IntervalForm::Term& term : form.terms) {
    if (term.variable >= 0)
      variables.push_back(term.variable);
    else
      collect_variables(*term.argument, variables);
  }
}

}  // namespace

Interval IntervalForm::eval(std::span<const Interval> variables) const {
  Interval result{constant, constant};
  for (const Term& term : terms) {
    Interval range;
    if (term.variable >= 0) {
      range = variables[static_cast<size_t>(term.variable)];
    } else {
      const Interval inside = term.argument->eval(variables);
      const int64_t first = QuasiAffine::floor_divide(inside.lo, term.divisor);
      const int64_t last = QuasiAffine::floor_divide(inside.hi, term.divisor);
      if (!term.is_remainder)
        range = {first, last};
      else if (first == last)
        range = {inside.lo - first * term.divisor, inside.hi - first * term.divisor};
      else
        range = {0, term.divisor - 1};
    }
    if (term.coefficient < 0) std::swap(range.lo, range.hi);
    result.lo += term.coefficient * range.lo;
    result.hi += term.coefficient * range.hi;
  }
  return result;
}

std::optional<IntervalForm> interval_form(const Expr& expr, std::span<const std::string> inames) {
  auto form = read(expr, inames);
  if (!form) return std::nullopt;
  std::vector<int> variables;
  collect_variables(*form, variables);
  std::ranges::sort(variables);
  if (std::ranges::adjacent_find(variables) != variables.end()) return std::nullopt;
  return form;
}

}  // namespace megalith::loop
