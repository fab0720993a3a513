#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

using graph::operator_;

graph::Operator attention_partial_of(const std::string& name, bool norm) {
  const std::string old = "p < start[t] and (p // L) mod C == c";
  const std::string fresh = "(position[u] // L) mod C == c and request[u] == request[t] and position[u] <= position[t]";
  const std::string cached = "page_table[request[t], p // B], p mod B, g";
  operator_ op(name, "softmax(q k^T) v over one chunk of the positions, not normalised");
  op.input("qkv", {"T", "G * E * 2 * H"}, DType::bf16);
  if (norm) op.input("q_norm", {"2 * H"}, DType::bf16).input("k_norm", {"2 * H"}, DType::bf16);
  op.input("cosine", {"S", "H"})
      .input("sine", {"S", "H"})
      .input("k_cache", {"P", "B", "G", "2 * H"})
      .input("v_cache", {"P", "B", "G", "2 * H"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .index("start", {"T"}, "S")
      .output("part", {"T", "C", "G * M", "2 * H"})
      .exactly()
      // Of each head the largest score, then the total of exp(score - largest).
      .output("softmax", {"T", "C", "G * M", "2"})
      .exactly()
      // Small, for tests: their tables of cosines and sines are no angles, and exp() makes errors of large scores
      // larger.
      .attribute("scale", 0.03125);
  if (norm) op.attribute("eps", 1e-6);
  op.size("C").size("L").size("E");
  op.loops(R"(
        { [t, g, m, c, p, u, d, e, f, h, j, q] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= c < C and 0 <= p < S and 0 <= u < T and 0 <= d < 2 * H and 0 <= e < 2 * H and 0 <= f < 2 * H and 0 <= h < H and 0 <= j < 2 * H and 0 <= q < 2 * H }
)" + rotated_head("x", "t", "t, g, m", "m", norm ? "q_norm" : "") +
           rotated_head("y", "u", "u, g", "M", norm ? "k_norm" : "") +
           "a[t, g, m, c, p] = scale * sum(d, x_r[t, g, m, d] * f32(k_cache[" + cached + ", d])) {if=" + old + "}\n" +
           "b[t, g, m, c, u] = scale * sum(f, x_r[t, g, m, f] * y_r[u, g, f]) {if=" + fresh + "}\n" +
           "softmax[t, c, g * M + m, 0] = max(max(p, a[t, g, m, c, p], " + old + "), max(u, b[t, g, m, c, u], " +
           fresh + "))\n" + "wa[t, g, m, c, p] = exp(a[t, g, m, c, p] - softmax[t, c, g * M + m, 0]) {if=" + old +
           "}\n" + "wb[t, g, m, c, u] = exp(b[t, g, m, c, u] - softmax[t, c, g * M + m, 0]) {if=" + fresh + "}\n" +
           "softmax[t, c, g * M + m, 1] = sum(p, wa[t, g, m, c, p], " + old + ") + sum(u, wb[t, g, m, c, u], " + fresh +
           ")\n" + "part[t, c, g * M + m, e] = sum(p, wa[t, g, m, c, p] * f32(v_cache[" + cached + ", e]), " + old +
           ") + sum(u, wb[t, g, m, c, u] * f32(qkv[u, (g * E + M + 1) * 2 * H + e]), " + fresh + ")\n");
  op.tasks({"g", "c", "t"});
  op.body({.target = "cuda",
           .file = "attention.cuh",
           .name = norm ? "attention_partial_norm" : "attention_partial_plain",
           .applies = heads_suit,
           .exchanged = {"qkv", "part", "softmax"},
           .area_bytes =
               [](const graph::BodyQuery& q) {
                 const int64_t m = q.sizes.at("M"), d = 2 * q.sizes.at("H");
                 return stream::kSumsBytes + attention::staged_bytes(m, q.sizes.at("T"), d) +
                        attention::joined_bytes(m, d);
               },
           .rounds_operands = true,
           .ahead = "attention_ahead"});
  op.test({{"T", 1},
           {"G", 2},
           {"M", 2},
           {"E", 4},
           {"H", 32},
           {"S", 64},
           {"P", 4},
           {"B", 16},
           {"R", 1},
           {"Q", 4},
           {"C", 3},
           {"L", 4}});
  op.test({{"T", 3},
           {"G", 2},
           {"M", 3},
           {"E", 5},
           {"H", 12},
           {"S", 20},
           {"P", 60},
           {"B", 1},
           {"R", 3},
           {"Q", 20},
           {"C", 2},
           {"L", 6}});
  op.test({{"T", 4},
           {"G", 1},
           {"M", 4},
           {"E", 6},
           {"H", 64},
           {"S", 96},
           {"P", 8},
           {"B", 16},
           {"R", 2},
           {"Q", 6},
           {"C", 2},
           {"L", 40}});
  return op;
}

/// Grouped-query causal attention from the fused projection, with rotation folded in.
graph::Operator attention_partial_qkv() { return attention_partial_of("attention_partial_qkv", false); }

}  // namespace megalith::ops
