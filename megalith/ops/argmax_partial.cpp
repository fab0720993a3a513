#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The largest value of each chunk of L columns and the lowest column that has it.
graph::Operator argmax_partial() {
  return operator_("argmax_partial", "largest value and its column, chunk by chunk")
      .input("x", {"R", "V"})
      .output("value", {"R", "C"})
      .output("index", {"R", "C"}, DType::i32)
      .size("C")
      .size("L")
      .loops(R"(
        { [r, c, v] : 0 <= r < R and 0 <= c < C and 0 <= v < L }
        value[r, c] = max(v, f32(x[r, c * L + v]), c * L + v < V)
        index[r, c] = c * L + argmax(v, f32(x[r, c * L + v]), c * L + v < V)
      )")
      .tasks({"c", "r"})
      .body({.target = "cuda",
             .file = "rowwise/gather.cuh",
             .name = "argmax_chunks",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return q.dtypes.at("x") == DType::f32 && q.dtypes.at("value") == DType::f32 &&
                          q.sizes.at("V") % 4 == 0 && q.sizes.at("L") % 4 == 0;
                 },
             .exchanged = {"value", "index"}})
      .test({{"R", 1}, {"V", 64}, {"C", 4}, {"L", 16}})
      .test({{"R", 3}, {"V", 501}, {"C", 6}, {"L", 96}});
}

}  // namespace megalith::ops
