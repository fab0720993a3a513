#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

graph::Operator add() {
  return operator_("add", "y = a + b")
      .input("a", {"T", "H"})
      .input("b", {"T", "H"})
      .output("y", {"T", "H"})
      .loops(R"(
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = f32(a[t, h]) + f32(b[t, h])
      )")
      .tasks({{"h", 16}, {"t", 1}})
      .test({{"T", 1}, {"H", 64}})
      .test({{"T", 3}, {"H", 77}});
}

}  // namespace megalith::ops
