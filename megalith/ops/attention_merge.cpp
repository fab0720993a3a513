#include <fmt/format.h>

#include "megalith/graph/operator.h"
#include "megalith/kernels/attention_layout.h"
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

/// Puts the chunks of attention_fresh together: A heads of D values, C chunks. `softmax` has of each head the largest score of a
/// chunk and the total of its weights; an empty chunk has -inf and 0.
///
/// Rows are F apart in a task, up to one for each part of a block, so that of few rows a task has no more than one.
graph::Operator attention_merge_chunks() {
  std::string loops = "{ [r, a, c, d] : 0 <= r < F and 0 <= a < A and 0 <= c < C and 0 <= d < D }\n";
  for (int i = 0; i < attention::kParts; ++i)
    loops += fmt::format(R"(
        big{0}[r, a]           = max(c, softmax[{1}, c, a, 0])  {{if={1} < T}}
        weight{0}[r, a]        = sum(c, exp(softmax[{1}, c, a, 0] - big{0}[r, a]) * softmax[{1}, c, a, 1])  {{if={1} < T}}
        y[{1}, a * D + d] = sum(c, exp(softmax[{1}, c, a, 0] - big{0}[r, a]) * part[{1}, c, a, d]) / weight{0}[r, a]  {{if={1} < T}}
      )",
                         i, fmt::format("r + {} * F", i));
  return operator_("attention_merge_chunks",
                   "y = sum of the chunks' parts, weighted by exp(largest score), over their total")
      .input("part", {"T", "C", "A", "D"})
      .exactly()
      .input("softmax", {"T", "C", "A", "2"})
      .exactly()
      .output("y", {"T", "A * D"}, DType::bf16)
      .size("F")
      .loops(loops)
      .tasks({"a", "r"})
      .test({{"T", 1}, {"A", 2}, {"D", 64}, {"C", 1}, {"F", 1}})
      .test({{"T", 5}, {"A", 3}, {"D", 80}, {"C", 4}, {"F", 2}});
}

}  // namespace megalith::ops
