#include "megalith/graph/operator.h"
#include "megalith/kernels/attention_workspace.h"

namespace megalith::ops {

using graph::operator_;

/// Puts the chunks of attention_partial together: A heads of D values, C chunks of L positions.
graph::Operator attention_merge() {
  return operator_("attention_merge", "y = sum of the chunks' parts, weighted by exp(top), over their total")
      .input("part", {"T", "C", "A", "D"})
      .exactly()
      .input("top", {"T", "C", "A"})
      .exactly()
      .input("total", {"T", "C", "A"})
      .exactly()
      .index("position", {"T"}, "C * L")
      .output("y", {"T", "A * D"})
      .size("L")
      .loops(R"(
        { [t, a, c, d] : 0 <= t < T and 0 <= a < A and 0 <= c < C and 0 <= d < D }
        big[t, a]       = max(c, top[t, c, a], c * L <= position[t])
        weight[t, a]    = sum(c, exp(top[t, c, a] - big[t, a]) * total[t, c, a], c * L <= position[t])
        y[t, a * D + d] = sum(c, exp(top[t, c, a] - big[t, a]) * part[t, c, a, d], c * L <= position[t]) / weight[t, a]
      )")
      .tasks({"a", "t"})
      .body({.target = "cpu",
             .file = "attention.h",
             .name = "attention_merge",
             .applies = {},
             .area_bytes =
                 [](const graph::BodyQuery& q) {
                   return int64_t{attention_workspace::merge_bytes(q.sizes.at("C"), q.sizes.at("D"))};
                 }})
      .test({{"T", 1}, {"A", 2}, {"D", 64}, {"C", 1}, {"L", 8}})
      .test({{"T", 3}, {"A", 3}, {"D", 80}, {"C", 4}, {"L", 5}});
}

}  // namespace megalith::ops
