#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The rows that there are today, from a tensor that has as many into one that has room for more: where a tensor's
/// owner knows nothing of dynamic sizes. The rows behind them stay as they were.
graph::Operator copy_rows() {
  return operator_("copy_rows", "y[t] = x[t] for the tokens that there are")
      .input("x", {"T", "H"})
      .output("y", {"U", "H"})
      .loops(R"(
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = f32(x[t, h])
      )")
      .tasks({{"h", 16}, {"t", 1}})
      .test({{"T", 1}, {"U", 1}, {"H", 64}})
      .test({{"T", 3}, {"U", 5}, {"H", 77}});
}

}  // namespace megalith::ops
