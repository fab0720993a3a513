#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// argmax_partial where only the first W columns count: a chunk without any of them has -inf.
graph::Operator argmax_partial_padded() {
  return operator_("argmax_partial_padded", "largest of the first W values and its column, chunk by chunk")
      .input("x", {"R", "V"})
      .output("value", {"R", "C"})
      .output("index", {"R", "C"}, DType::i32)
      .size("C")
      .size("L")
      .size("W")
      .loops(R"(
        { [r, c, v] : 0 <= r < R and 0 <= c < C and 0 <= v < L }
        value[r, c] = max(v, f32(x[r, c * L + v]), c * L + v < V and c * L + v < W)
        index[r, c] = c * L + argmax(v, f32(x[r, c * L + v]), c * L + v < V and c * L + v < W)
      )")
      .tasks({"c", "r"})
      .test({{"R", 1}, {"V", 64}, {"C", 4}, {"L", 16}, {"W", 50}})
      .test({{"R", 3}, {"V", 501}, {"C", 6}, {"L", 96}, {"W", 470}});
}

}  // namespace megalith::ops
