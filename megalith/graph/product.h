// Products of sizes, as shapes have them, "G * M * 2 * H"; and sums of products of names, as subscripts have them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::graph {

struct Product {
  int64_t number = 1;
  std::vector<std::string> names;  // in the order of the text

  /// UserError unless the text is names and whole numbers with `*` between.
  static Product of(const std::string& text);
  std::string text() const;  // the number stands in front of the last name
  bool is_name() const { return number == 1 && names.size() == 1; }
  /// Names replaced by products.
  Product replaced(const std::map<std::string, std::string>& by) const;
  /// Factors that are one axis each: names, the last one with the number.
  std::vector<std::string> axes() const;
};
/// Whatever the order.
bool same_product(const Product& a, const Product& b);

/// (g * M + m) * 2 * H + h over axes G, M and 2 * H is g, m, h: the subscripts of an axis each. Nothing if the expression is
/// not made of sums and products.
std::optional<std::vector<loop::Expr>> subscripts_of_axes(const loop::Expr& flat, const std::vector<std::string>& axes);

}  // namespace megalith::graph
