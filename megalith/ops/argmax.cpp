#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The column of each row's largest value; of equals the lowest.
graph::Operator argmax() {
  return operator_("argmax", "best[r] = the column of the largest x[r, v]")
      .input("x", {"R", "V"})
      .output("best", {"R"}, DType::i32)
      .loops(R"(
        { [r, v] : 0 <= r < R and 0 <= v < V }
        best[r] = argmax(v, f32(x[r, v]))
      )")
      .tasks({"r"})
      .test({{"R", 1}, {"V", 64}})
      .test({{"R", 3}, {"V", 501}});
}

}  // namespace megalith::ops
