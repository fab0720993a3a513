#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The same values in another place, or in another float dtype.
graph::Operator copy() {
  return operator_("copy", "y = x")
      .input("x", {"T", "H"})
      .output("y", {"T", "H"})
      .loops(R"(
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = f32(x[t, h])
      )")
      .tasks({{"h", 16}, {"t", 1}})
      .test({{"T", 1}, {"H", 64}})
      .test({{"T", 3}, {"H", 77}});
}

}  // namespace megalith::ops
