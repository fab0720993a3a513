#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Whole numbers into another integer dtype.
graph::Operator copy_tokens() {
  return operator_("copy_tokens", "y = x, whole numbers")
      .input("x", {"T"}, DType::i32)
      .output("y", {"T"}, DType::i32)
      .loops(R"(
        { [t] : 0 <= t < T }
        y[t] = x[t]
      )")
      .test({{"T", 1}})
      .test({{"T", 5}});
}

}  // namespace megalith::ops
