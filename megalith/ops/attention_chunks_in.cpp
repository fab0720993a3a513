#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Puts the chunks of attention_chunks_out together. A row of which every chunk has -inf is one that was not there:
/// it becomes 0.
graph::Operator attention_chunks_in() {
  return operator_("attention_chunks_in", "y = sum of the chunks, weighted by exp(lse)")
      .input("lse", {"T", "C * M", "G"})
      .input("part", {"T", "C * M * D", "G"})
      .output("y", {"T", "G * M * D"})
      .size("C")
      .size("M")
      .loops(R"(
        { [t, g, m, c, d] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= c < C and 0 <= d < D }
        big[t, g, m]              = max(max(c, f32(lse[t, c * M + m, g])), -1e30)
        weight[t, g, m]           = sum(c, exp(f32(lse[t, c * M + m, g]) - big[t, g, m]))
        y[t, (g * M + m) * D + d] = sum(c, exp(f32(lse[t, c * M + m, g]) - big[t, g, m]) * f32(part[t, (c * M + m) * D + d, g])) / max(weight[t, g, m], 1e-30)
      )")
      .tasks({"g", "t"})
      .test({{"T", 1}, {"C", 1}, {"G", 1}, {"M", 2}, {"D", 64}})
      .test({{"T", 3}, {"C", 4}, {"G", 3}, {"M", 2}, {"D", 33}});
}

}  // namespace megalith::ops
