// The range of an index over a box of iname values, by interval arithmetic: the common case of a footprint, exact and
// without isl.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// lo <= value <= hi.
struct Interval {
  int64_t lo = 0, hi = 0;
};

/// constant + sum of coefficient * (an iname, or a floor quotient or remainder of another such form). No iname occurs
/// in two terms, so that the range of the sum is the sum of the ranges. A remainder that wraps around counts as
/// 0..divisor-1.
struct IntervalForm {
  struct Term {
    int64_t coefficient = 1;
    int variable = -1;                             // or, if negative:
    std::shared_ptr<const IntervalForm> argument;  // argument // divisor, or argument mod divisor
    int64_t divisor = 1;
    bool is_remainder = false;
  };
  int64_t constant = 0;
  std::vector<Term> terms;

  Interval eval(std::span<const Interval> variables) const;
};

/// Nothing if the expression is not affine in `inames`, or mentions one of them in several terms: then isl must be
/// asked.
std::optional<IntervalForm> interval_form(const Expr& expr, std::span<const std::string> inames);

}  // namespace megalith::loop
