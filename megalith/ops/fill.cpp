#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// One value everywhere: what sums are added to.
graph::Operator fill() {
  return operator_("fill", "y = value")
      .output("y", {"T", "H"})
      .attribute("value", 0)
      .loops(R"(
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = value
      )")
      .tasks({{"h", 16}, {"t", 1}})
      .test({{"T", 1}, {"H", 64}})
      .test({{"T", 3}, {"H", 77}});
}

}  // namespace megalith::ops
