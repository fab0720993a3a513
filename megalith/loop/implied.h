// Bounds of a loop that say nothing which others do not.
#pragma once

#include <isl/cpp.h>

namespace megalith::loop {

/// `set` without bounds of its last dimension that follow from the others because numbers are whole: with n mod 16 = 0 and
/// 16 * o < n, p < n - 16 * o says no more than p < 16. isl drops by itself what follows for fractions, too.
isl::set without_implied(const isl::set& set);

}  // namespace megalith::loop
