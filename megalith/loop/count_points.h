// How many points a set has. isl counts only with barvinok; the sets of loop kernels are boxes and a few triangles.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <vector>

#include "megalith/loop/footprint.h"

namespace megalith::loop {

/// The exact number of points of a bounded set without parameters. Inames that no constraint ties together are counted
/// apart and multiplied; of inames tied together all but the innermost are enumerated. UserError if the set is
/// unbounded.
int64_t count_points(const isl::set& set);

/// The number of elements in the union of boxes of one tensor.
int64_t count_elements(const std::vector<Box>& boxes);

}  // namespace megalith::loop
