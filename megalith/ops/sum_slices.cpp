#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Adds up what linear_slices made, in the order of the slices.
graph::Operator sum_slices() {
  return operator_("sum_slices", "y = sum of the slices")
      .input("part", {"S", "T", "N"})
      .exactly()
      .output("y", {"T", "N"})
      .loops(R"(
        { [t, n, s] : 0 <= t < T and 0 <= n < N and 0 <= s < S }
        y[t, n] = sum(s, part[s, t, n])
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .test({{"S", 2}, {"T", 1}, {"N", 64}})
      .test({{"S", 3}, {"T", 3}, {"N", 37}});
}

}  // namespace megalith::ops
