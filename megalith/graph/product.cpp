#include "megalith/graph/product.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"

namespace megalith::graph {

using loop::Expr;

Product Product::of(const std::string& text) {
  Product product;
  std::string factor;
  const auto take = [&] {
    int64_t number = 0;
    const char* const end = factor.data() + factor.size();
    if (is_identifier(factor)) {
      product.names.push_back(factor);
    } else {
      const auto [at, error] = std::from_chars(factor.data(), end, number);
      MEGALITH_CHECK(error == std::errc() && at == end && number > 0,
                     "\"{}\" is no product of sizes and whole numbers, as \"G * 2 * H\" is", plain_text(text));
      product.number *= number;
    }
    factor.clear();
  };
  for (const char c : text) {
    if (c == '*')
      take();
    else if (c != ' ')
      factor += c;
  }
  take();
  return product;
}

std::string Product::text() const { return fmt::format("{}", fmt::join(axes(), " * ")); }

Product Product::replaced(const std::map<std::string, std::string>& by) const {
  Product result{.number = number, .names = {}};
  for (const std::string& name : names) {
    const auto found = by.find(name);
    const Product factor = found == by.end() ? Product{1, {name}} : of(found->second);
    result.number *= factor.number;
    result.names.insert(result.names.end(), factor.names.begin(), factor.names.end());
  }
  return result;
}

std::vector<std::string> Product::axes() const {
  std::vector<std::string> all = names;
  if (all.empty()) return {fmt::format("{}", number)};
  if (number != 1) all.back() = fmt::format("{} * {}", number, all.back());
  return all;
}

bool same_product(const Product& a, const Product& b) {
  std::vector<std::string> x = a.names, y = b.names;
  std::ranges::sort(x);
  std::ranges::sort(y);
  return a.number == b.number && x == y;
}

namespace {

// Products of names, sorted, and how often each counts.
using Sum = std::map<std::vector<std::string>, int64_t>;

std::optional<Sum> sum_of(const Expr& expr) {
  if (expr.kind == Expr::Kind::number && expr.is_integer) return Sum{{{}, static_cast<int64_t>(expr.number)}};
  if (expr.kind == Expr::Kind::name) return Sum{{{expr.name}, 1}};
  if (expr.kind != Expr::Kind::call || expr.args.size() != 2) return std::nullopt;
  const std::optional<Sum> a = sum_of(expr.args[0]), b = sum_of(expr.args[1]);
  if (!a || !b) return std::nullopt;
  Sum result;
  if (expr.name == "+" || expr.name == "-") {
    result = *a;
    for (const auto& [names, count] : *b) result[names] += expr.name == "+" ? count : -count;
  } else if (expr.name == "*") {
    for (const auto& [x, m] : *a)
      for (const auto& [y, n] : *b) {
        std::vector<std::string> names = x;
        names.insert(names.end(), y.begin(), y.end());
        std::ranges::sort(names);
        result[names] += m * n;
      }
  } else {
    return std::nullopt;
  }
  std::erase_if(result, [](const auto& term) { return term.second == 0; });
  return result;
}

Expr expression_of(const Sum& sum) {
  std::optional<Expr> result;
  for (const auto& [names, count] : sum) {
    std::optional<Expr> term;
    if (count != 1 || names.empty()) term = loop::make_integer(count);
    for (const std::string& name : names)
      term = term ? loop::make_call("*", {*term, loop::make_name(name)}) : loop::make_name(name);
    result = result ? loop::make_call("+", {*result, *term}) : *term;
  }
  return result.value_or(loop::make_integer(0));
}

}  // namespace

std::optional<std::vector<Expr>> subscripts_of_axes(const Expr& flat, const std::vector<std::string>& axes) {
  if (axes.size() == 1) return std::vector{flat};
  std::optional<Sum> rest = sum_of(flat);
  if (!rest) return std::nullopt;
  std::vector<Expr> subscripts;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    Product stride;
    for (size_t i = axis + 1; i < axes.size(); ++i) {
      const Product factor = Product::of(axes[i]);
      stride.number *= factor.number;
      stride.names.insert(stride.names.end(), factor.names.begin(), factor.names.end());
    }
    std::ranges::sort(stride.names);
    Sum quotient;
    std::erase_if(*rest, [&](const auto& term) {
      const auto& [names, count] = term;
      if (!std::ranges::includes(names, stride.names) || count % stride.number != 0) return false;
      std::vector<std::string> left;
      std::ranges::set_difference(names, stride.names, std::back_inserter(left));
      quotient[left] += count / stride.number;
      return true;
    });
    subscripts.push_back(expression_of(quotient));
  }
  return subscripts;
}

}  // namespace megalith::graph
