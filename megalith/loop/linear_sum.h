// Whole-number expressions as sums: a constant and multiples of what is no sum itself. Subscripts are flattened with it, strides
// are read off it, conditions become bounds of loops by it, and parts of a subscript are taken out with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// to + a * b. UserError where that does not fit.
int64_t added(int64_t to, int64_t a, int64_t b);

/// constant + sum of coefficient * atom. An atom is a name, or anything that is not linear: a tensor read, a floor division.
/// Equal atoms are merged; terms stand in the order in which they came.
struct LinearSum {
  struct Term {
    Expr atom;
    int64_t coefficient = 0;
  };
  int64_t constant = 0;
  std::vector<Term> terms;

  /// Adds factor * other.
  LinearSum& add(const LinearSum& other, int64_t factor = 1);
  /// The value times a size: by a number each coefficient, by a name all in one. `nests`: several terms all in one, too.
  LinearSum times(const Expr& size, bool nests = false) const;
  /// How much the value grows when `iname` grows by one; nothing if that is not a constant.
  std::optional<int64_t> coefficient(const std::string& iname) const;
  /// The same without the term of `iname`.
  LinearSum without(const std::string& iname) const;
};

LinearSum sum_of(const Expr& expr);
/// Terms in the order of their texts.
Expr expression_of(const LinearSum& sum);

/// Value of an expression of whole numbers and sizes, e.g. of a shape. InternalError if it is not one.
int64_t integer_value(const Expr& expr, const std::map<std::string, int64_t>& sizes);

}  // namespace megalith::loop
