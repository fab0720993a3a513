#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The winner among the chunks of argmax_partial; of equals the lowest column.
graph::Operator argmax_reduce() {
  return operator_("argmax_reduce", "best[r] = index[r, argmax of value[r]]")
      .input("value", {"R", "C"})
      .input("index", {"R", "C"}, DType::i32)
      .output("best", {"R"}, DType::i32)
      .loops(R"(
        { [r, c] : 0 <= r < R and 0 <= c < C }
        best[r] = index[r, argmax(c, value[r, c])]
      )")
      .tasks({"r"})
      .body({.target = "cuda",
             .file = "rowwise/gather.cuh",
             .name = "argmax_reduce_rows",
             .applies = [](const graph::BodyQuery& q) { return q.dtypes.at("value") == DType::f32; },
             .exchanged = {"value", "index"}})
      .test({{"R", 1}, {"C", 4}})
      .test({{"R", 3}, {"C", 7}});
}

}  // namespace megalith::ops
