#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The chunks of attention_partial as others keep them: each normalised by itself, with the logarithm of its total
/// weight, chunks before heads, groups last. A chunk that begins after the row's position has 0 and -inf, and so have
/// rows that are not there today, of which `U` counts all. C chunks of L positions, G groups of M heads.
graph::Operator attention_chunks_out() {
  return operator_("attention_chunks_out", "y = each chunk's part over its total; lse = its top + log(total)")
      .input("part", {"T", "C", "G * M", "D"})
      .exactly()
      .input("top", {"T", "C", "G * M"})
      .exactly()
      .input("total", {"T", "C", "G * M"})
      .exactly()
      .index("position", {"T"}, "C * L")
      .output("lse", {"U", "C * M", "G"})
      .output("y", {"U", "C * M * D", "G"})
      .size("L")
      .size("M")
      .loops(R"(
        { [t, u, c, g, m, d] : 0 <= t < T and 0 <= u < U and 0 <= c < C and 0 <= g < G and 0 <= m < M and 0 <= d < D }
        lse[u, c * M + m, g]           = -inf
        y[u, (c * M + m) * D + d, g]   = 0
        lse[t, c * M + m, g]           = top[t, c, g * M + m] + log(total[t, c, g * M + m])  {if=c * L <= position[t]}
        y[t, (c * M + m) * D + d, g]   = part[t, c, g * M + m, d] / total[t, c, g * M + m]  {if=c * L <= position[t]}
      )")
      .tasks({"g", "c"})
      .test({{"T", 1}, {"U", 1}, {"C", 2}, {"G", 2}, {"M", 2}, {"D", 64}, {"L", 8}})
      .test({{"T", 3}, {"U", 5}, {"C", 4}, {"G", 3}, {"M", 1}, {"D", 80}, {"L", 5}});
}

}  // namespace megalith::ops
