#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Grouped-query causal attention of each row over its request's positions, its own among them: G key heads, each serving
/// M query heads of D values; the cache in pages of B positions, S positions at most (https://arxiv.org/abs/2305.13245).
/// How the positions are dealt to workers, and whether keys come from the cache, is for rules to decide.
graph::Operator attention() {
  return operator_("attention", "softmax(q k^T) v over all positions up to a token's own")
      .input("q", {"T", "G * M * D"})
      .input("k_cache", {"P", "B", "G", "D"})
      .input("v_cache", {"P", "B", "G", "D"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .output("y", {"T", "G * M * D"})
      .attribute("scale", 0.125)
      .size("S")
      .loops(R"(
        { [t, g, m, p, d, e] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= p < S and 0 <= d < D and 0 <= e < D }
        score[t, g, m, p] = scale * sum(d, f32(q[t, (g * M + m) * D + d]) * f32(k_cache[page_table[request[t], p // B], p mod B, g, d]))  {if=p <= position[t]}
        top[t, g, m]      = max(p, score[t, g, m, p], p <= position[t])
        w[t, g, m, p]     = exp(score[t, g, m, p] - top[t, g, m])  {if=p <= position[t]}
        total[t, g, m]    = sum(p, w[t, g, m, p], p <= position[t])
        y[t, (g * M + m) * D + e] = sum(p, w[t, g, m, p] * f32(v_cache[page_table[request[t], p // B], p mod B, g, e]), p <= position[t]) / total[t, g, m]
      )")
      .tasks({"g", "t"})
      .test({{"T", 1}, {"G", 1}, {"M", 2}, {"D", 64}, {"P", 4}, {"B", 16}, {"R", 1}, {"Q", 4}, {"S", 64}})
      .test({{"T", 3}, {"G", 2}, {"M", 3}, {"D", 80}, {"P", 60}, {"B", 1}, {"R", 3}, {"Q", 20}, {"S", 18}})
      .test({{"T", 7}, {"G", 2}, {"M", 1}, {"D", 33}, {"P", 3}, {"B", 70}, {"R", 2}, {"Q", 1}, {"S", 70}});
}

}  // namespace megalith::ops
