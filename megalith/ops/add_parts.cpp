#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Adds the parts of linear_part to what is there, in their order.
graph::Operator add_parts() {
  return operator_("add_parts", "y = y + sum of the parts")
      .input("part", {"S", "T", "N"})
      .exactly()
      .inout("y", {"T", "N"})
      .loops(R"(
        { [t, n, s] : 0 <= t < T and 0 <= n < N and 0 <= s < S }
        y[t, n] = f32(y[t, n]) + sum(s, part[s, t, n])
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .test({{"S", 2}, {"T", 1}, {"N", 64}})
      .test({{"S", 3}, {"T", 3}, {"N", 37}});
}

}  // namespace megalith::ops
