// Subscripts as sums: a constant and multiples of what is no sum itself, so that parts of them can be taken out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// to + a * b. UserError where that does not fit.
int64_t added(int64_t to, int64_t a, int64_t b);

/// constant + the sum of coefficient * term, terms by their text.
struct LinearSum {
  std::map<std::string, std::pair<int64_t, Expr>> terms;
  int64_t constant = 0;

  /// Adds factor * other.
  void add(const LinearSum& other, int64_t factor);
  /// Of the term that is this name; 0 if there is none.
  int64_t coefficient(const std::string& name) const;
};

LinearSum sum_of(const Expr& expr);
Expr expression_of(const LinearSum& sum);

}  // namespace megalith::loop
