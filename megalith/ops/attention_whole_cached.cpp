#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

using graph::operator_;

graph::Operator attention_cached_of(const std::string& name, bool norm) {
  const std::string seen = "p <= position[t]", cached = "page_table[request[t], p // B], p mod B, g";
  operator_ op(name, "softmax(q k^T) v over all positions up to a token's own, which are in the cache");
  add_inputs(op, norm, false);
  op.output("y", {"T", "G * M * 2 * H"}, DType::bf16).attribute("scale", 0.03125);  // small, as for attention_of()
  if (norm) op.attribute("eps", 1e-6);
  op.size("E");
  op.loops(
      "{ [t, g, m, p, d, e, h, j, q] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= p < S and 0 <= d < 2 * H and "
      "0 <= e < 2 * H and 0 <= h < H and 0 <= j < 2 * H and 0 <= q < 2 * H }\n" +
      rotated_head("x", "t", "t, g, m", "m", norm ? "q_norm" : "") +
      "a[t, g, m, p] = scale * sum(d, x_r[t, g, m, d] * f32(k_cache[" + cached + ", d])) {if=" + seen + "}\n" +
      "top[t, g, m] = max(p, a[t, g, m, p], " + seen + ")\n" +
      "w[t, g, m, p] = exp(a[t, g, m, p] - top[t, g, m]) {if=" + seen + "}\n" +
      "total[t, g, m] = sum(p, w[t, g, m, p], " + seen + ")\n" +
      "y[t, (g * M + m) * 2 * H + e] = sum(p, w[t, g, m, p] * f32(v_cache[" + cached + ", e]), " + seen +
      ") / total[t, g, m]\n");
  op.tasks({"g", "t"});
  op.body({.target = "cuda",
           .file = "attention.cuh",
           .name = norm ? "attention_whole_norm" : "attention_whole_plain",
           .applies = heads_suit,
           .blocked = {"y"},
           .area_bytes =
               [](const graph::BodyQuery& q) {
                 return attention::whole_bytes(q.sizes.at("E") - 2, 2 * q.sizes.at("H"), true);
               },
           .rounds_operands = true,
           .ahead = "attention_ahead"});
  return op
      .test({{"T", 1}, {"G", 2}, {"M", 2}, {"E", 4}, {"H", 32}, {"S", 64}, {"P", 4}, {"B", 16}, {"R", 1}, {"Q", 4}})
      .test({{"T", 3}, {"G", 2}, {"M", 3}, {"E", 5}, {"H", 12}, {"S", 20}, {"P", 60}, {"B", 1}, {"R", 3}, {"Q", 20}})
      .test({{"T", 40}, {"G", 1}, {"M", 2}, {"E", 4}, {"H", 16}, {"S", 48}, {"P", 12}, {"B", 8}, {"R", 2}, {"Q", 6}});
}

/// Grouped-query causal attention of many rows that are in the cache already, their own keys and values, too: of a
/// prompt's chunk each of those counts for many rows, and is worked out once.
graph::Operator attention_whole_cached() { return attention_cached_of("attention_whole_cached", false); }

}  // namespace megalith::ops
