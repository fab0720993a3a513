#include <algorithm>

#include "megalith/graph/operator.h"
#include "megalith/kernels/attention_workspace.h"

namespace megalith::ops {

using graph::operator_;

/// Grouped-query causal attention of each row over one chunk of its request's positions: G key heads, each serving M
/// query heads of D values; the cache in pages of B positions; C chunks of L positions. Writes the unnormalised sum,
/// its total weight and the largest score of the chunk, which attention_merge puts together (the split of
/// https://arxiv.org/abs/2311.01282). What belongs to a chunk that begins after the row's position is left as it was:
/// attention_merge does not look at it.
///
/// The chunk's length is part of the meaning, not of the partition: however the chunks are spread over tasks, the sums
/// are formed in the same order, so the result has the same bits on any number of workers. The parts stay in f32
/// however narrow the rest is: a rounded `top` would be off from the sums that were made with it.
graph::Operator attention_partial() {
  return operator_("attention_partial", "softmax(q k^T) v over one chunk of the positions, not normalised")
      .input("q", {"T", "G * M * D"})
      .input("k_cache", {"P", "B", "G", "D"})
      .input("v_cache", {"P", "B", "G", "D"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "Q * B")
      .output("part", {"T", "C", "G * M", "D"})
      .exactly()
      .output("top", {"T", "C", "G * M"})
      .exactly()
      .output("total", {"T", "C", "G * M"})
      .exactly()
      .attribute("scale", 0.125)
      .size("C")
      .size("L")
      .loops(R"(
        { [t, g, m, c, s, d, e] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= c < C and 0 <= s < L and 0 <= d < D and 0 <= e < D }
        score[t, g, m, c, s]    = scale * sum(d, f32(q[t, (g * M + m) * D + d]) * f32(k_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, d]))  {if=c * L + s <= position[t]}
        top[t, c, g * M + m]    = max(s, score[t, g, m, c, s], c * L + s <= position[t])  {if=c * L <= position[t]}
        p[t, g, m, c, s]        = exp(score[t, g, m, c, s] - top[t, c, g * M + m])  {if=c * L + s <= position[t]}
        total[t, c, g * M + m]  = sum(s, p[t, g, m, c, s], c * L + s <= position[t])  {if=c * L <= position[t]}
        part[t, c, g * M + m, e] = sum(s, p[t, g, m, c, s] * f32(v_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, e]), c * L + s <= position[t])  {if=c * L <= position[t]}
      )")
      .tasks({"g", "c", "t"})
      .body({.target = "cpu",
             .file = "attention.h",
             .name = "attention_partial",
             .applies = {},
             .area_bytes =
                 [](const graph::BodyQuery& q) {
                   const int64_t bytes =
                       std::max(dtype_bytes(q.dtypes.at("k_cache")), dtype_bytes(q.dtypes.at("v_cache")));
                   return int64_t{attention_workspace::partial_bytes(q.sizes.at("D"), q.sizes.at("L"), bytes)};
                 }})
      .test({{"T", 1}, {"G", 1}, {"M", 2}, {"D", 64}, {"P", 4}, {"B", 16}, {"R", 1}, {"Q", 4}, {"C", 2}, {"L", 32}})
      .test({{"T", 3}, {"G", 2}, {"M", 3}, {"D", 80}, {"P", 60}, {"B", 1}, {"R", 3}, {"Q", 20}, {"C", 3}, {"L", 6}})
      .test({{"T", 7}, {"G", 2}, {"M", 1}, {"D", 33}, {"P", 3}, {"B", 70}, {"R", 2}, {"Q", 1}, {"C", 2}, {"L", 35}});
}

}  // namespace megalith::ops
