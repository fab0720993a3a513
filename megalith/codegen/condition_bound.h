// Conditions as bounds of loops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/linear_sum.h"

namespace megalith::codegen {

/// A comparison as a bound of `iname`: iname < (or >=) floor(bound / divisor) + offset.
struct ConditionBound {
  bool is_upper = false;  // exclusive
  loop::LinearSum bound;
  int64_t divisor = 1;
  int64_t offset = 0;
};
/// Nothing if `condition` is not a linear inequality in `iname`.
std::optional<ConditionBound> condition_bound(const loop::Expr& condition, const std::string& iname);

/// a and b and c as {a, b, c}.
std::vector<loop::Expr> conjuncts(const loop::Expr& condition);

}  // namespace megalith::codegen
