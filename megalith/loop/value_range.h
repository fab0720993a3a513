// The values that a whole-number expression can have whatever the data is: from the inames' domains, the dtypes of what
// is read, and interval arithmetic. Code generators leave out a check of a subscript whose values are all inside.
#pragma once

#include <cstdint>
#include <optional>

#include "megalith/loop/access.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// lo <= value <= hi; what is absent has no bound that an i64 holds.
struct ValueRange {
  std::optional<int64_t> lo, hi;

  bool is_within(int64_t least, int64_t most) const { return lo && hi && *lo >= least && *hi <= most; }
};

/// Of `expr` evaluated at `place`. `kernel` has its static sizes put in, types are inferred. A value of a floating type
/// has no bounds, nor has what cannot be told.
ValueRange value_range(const Kernel& kernel, const Domains& domains, const Expr& expr, const Place& place);

/// The values of an integer dtype.
ValueRange dtype_range(DType dtype);

}  // namespace megalith::loop
