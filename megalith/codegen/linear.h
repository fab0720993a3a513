// Whole-number expressions as sums of coefficient * atom. Subscripts are flattened with it (an index is one such sum),
// strides are read off it, and conditions are turned into loop bounds by it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::codegen {

/// constant + sum of coefficient * atom. An atom is a name, or anything that is not linear: a tensor read, a floor
/// division. Equal atoms are merged.
struct Linear {
  struct Term {
    loop::Expr atom;
    int64_t coefficient = 0;
  };
  int64_t constant = 0;
  std::vector<Term> terms;

  Linear& add(const Linear& other, int64_t factor = 1);
  /// The value times a size: by a number each coefficient, by a name all in one.
  Linear times(const loop::Expr& size) const;
  /// How much the value grows when `iname` grows by one; nothing if that is not a constant.
  std::optional<int64_t> coefficient(const std::string& iname) const;
  /// The same without the term of `iname`.
  Linear without(const std::string& iname) const;
};

Linear linear_of(const loop::Expr& expr);
loop::Expr expression_of(const Linear& linear);

/// Value of an expression of whole numbers and sizes, e.g. of a shape. InternalError if it is not one.
int64_t integer_value(const loop::Expr& expr, const std::map<std::string, int64_t>& sizes);

/// A comparison as a bound of `iname`: iname < (or >=) floor(bound / divisor) + offset.
struct ConditionBound {
  bool is_upper = false;  // exclusive
  Linear bound;
  int64_t divisor = 1;
  int64_t offset = 0;
};
/// Nothing if `condition` is not a linear inequality in `iname`.
std::optional<ConditionBound> condition_bound(const loop::Expr& condition, const std::string& iname);

/// a and b and c as {a, b, c}.
std::vector<loop::Expr> conjuncts(const loop::Expr& condition);

}  // namespace megalith::codegen
