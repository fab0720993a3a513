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
