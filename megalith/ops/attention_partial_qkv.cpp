#include "megalith/kernels/gemm_layout.h"
#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

using graph::operator_;

// `whole`: all positions at once, normalised; otherwise one of C chunks of them, not normalised.
graph::Operator attention_of(const std::string& name, bool norm, bool whole) {
  const std::string c = whole ? "" : "c, ";
  const auto in_chunk = [&](const std::string& position) {
    return whole ? "" : "(" + position + " // L) mod C == c and ";
  };
  const std::string old = in_chunk("p") + "p < start[t]";
  const std::string fresh = in_chunk("position[u]") + "request[u] == request[t] and position[u] <= position[t]";
  const std::string cached = "page_table[request[t], p // B], p mod B, g";
  operator_ op(name, whole ? "softmax(q k^T) v over all positions"
                           : "softmax(q k^T) v over one chunk of the positions, not normalised");
  add_inputs(op, norm, norm);
  op.index("start", {"T"}, "S");
  if (whole)
    op.output("y", {"T", "G * M * 2 * H"}, DType::bf16);
  else
    op.output("part", {"T", "C", "G * M", "2 * H"})
        .exactly()
        // Of each head the largest score, then the total of exp(score - largest).
        .output("softmax", {"T", "C", "G * M", "2"})
        .exactly();
  // Small, for tests: their tables of cosines and sines are no angles, and exp() makes errors of large scores larger.
  op.attribute("scale", 0.03125);
  if (norm) op.attribute("eps", 1e-6);
  if (!whole) op.size("C").size("L");
  op.size("E");
  const std::string top = whole ? "top[t, g, m]" : "softmax[t, c, g * M + m, 0]";
  const std::string total = whole ? "total[t, g, m]" : "softmax[t, c, g * M + m, 1]";
  op.loops(
      "{ [t, g, m, " + c + "p, u, d, e, f, h, j, q] : 0 <= t < T and 0 <= g < G and 0 <= m < M and " +
      (whole ? "" : "0 <= c < C and ") +
      "0 <= p < S and 0 <= u < T and 0 <= d < 2 * H and 0 <= e < 2 * H and 0 <= f < 2 * H and 0 <= h < H and 0 <= j "
      "< 2 * H and 0 <= q < 2 * H }\n" +
      rotated_head("x", "t", "t, g, m", "m", norm ? "q_norm" : "") +
      rotated_head("y", "u", "u, g", "M", norm ? "k_norm" : "") +  //
      "a[t, g, m, " + c + "p] = scale * sum(d, x_r[t, g, m, d] * f32(k_cache[" + cached + ", d])) {if=" + old +
      "}\n" +                                                                                           //
      "b[t, g, m, " + c + "u] = scale * sum(f, x_r[t, g, m, f] * y_r[u, g, f]) {if=" + fresh + "}\n" +  //
      top + " = max(max(p, a[t, g, m, " + c + "p], " + old + "), max(u, b[t, g, m, " + c + "u], " + fresh + "))\n" +
      "wa[t, g, m, " + c + "p] = exp(a[t, g, m, " + c + "p] - " + top + ") {if=" + old + "}\n" +    //
      "wb[t, g, m, " + c + "u] = exp(b[t, g, m, " + c + "u] - " + top + ") {if=" + fresh + "}\n" +  //
      total + " = sum(p, wa[t, g, m, " + c + "p], " + old + ") + sum(u, wb[t, g, m, " + c + "u], " + fresh + ")\n" +
      (whole ? "y[t, (g * M + m) * 2 * H + e] = (" : "part[t, c, g * M + m, e] = (") +  //
      "sum(p, wa[t, g, m, " + c + "p] * f32(v_cache[" + cached + ", e]), " + old + ") + sum(u, wb[t, g, m, " + c +
      "u] * f32(qkv[u, (g * E + M + 1) * 2 * H + e]), " + fresh + "))" + (whole ? " / " + total : "") + "\n");
  whole ? op.tasks({"g", "t"}) : op.tasks({"g", "c", "t"});
  graph::TunedBody body = {
      .target = "cuda",
      .file = "attention.cuh",
      .name = std::string(whole ? "attention_whole" : "attention_partial") + (norm ? "_norm" : "_plain"),
      .applies = [](const graph::BodyQuery& q) { return heads_suit_of(q, stream::kWideRows); },  // a bit for each
      .area_bytes =
          [whole](const graph::BodyQuery& q) {
            const int64_t m = q.sizes.at("E") - 2, d = 2 * q.sizes.at("H");
            return whole ? attention::whole_bytes(m, d, false) : attention::chunk_bytes(q.sizes.at("T"), m, d);
          },
      .rounds_operands = true,
      .ahead = "attention_ahead"};
  if (whole) {
    body.blocked = {"y"};
    body.paired = {"k_cache", "v_cache"};
  } else {
    body.exchanged = {"qkv", "part", "softmax"};
  }
  op.body(body);
  if (whole)
    return op
        .test({{"T", 1}, {"G", 2}, {"M", 2}, {"E", 4}, {"H", 32}, {"S", 64}, {"P", 4}, {"B", 16}, {"R", 1}, {"Q", 4}})
        .test({{"T", 3}, {"G", 2}, {"M", 3}, {"E", 5}, {"H", 12}, {"S", 20}, {"P", 60}, {"B", 1}, {"R", 3}, {"Q", 20}})
        .test({{"T", 40}, {"G", 1}, {"M", 2}, {"E", 4}, {"H", 16}, {"S", 48}, {"P", 12}, {"B", 8}, {"R", 2}, {"Q", 6}});
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
  // Heads longer than a block has registers for: several rows share it on a GPU.
  op.test({{"T", 3},
           {"G", 1},
           {"M", 2},
           {"E", 4},
           {"H", 80},
           {"S", 48},
           {"P", 6},
           {"B", 8},
           {"R", 2},
           {"Q", 6},
           {"C", 2},
           {"L", 12}});
  return op;
}

/// Grouped-query causal attention from the fused projection, with rotation folded in.
graph::Operator attention_partial_qkv() { return attention_of("attention_partial_qkv", false, false); }

}  // namespace megalith::ops
