#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

using graph::operator_;

graph::Operator kv_append_of(const std::string& name, bool norm) {
  const std::string place = "page_table[request[u], position[u] // B], position[u] mod B, g, d";
  operator_ op(name, "writes the keys, rotated, and values of this iteration's tokens into the cache");
  op.input("qkv", {"T", "G * E * 2 * H"}, DType::bf16);
  if (norm) op.input("k_norm", {"2 * H"}, DType::bf16);
  op.input("cosine", {"S", "H"})
      .input("sine", {"S", "H"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .inout("k_cache", {"P", "B", "G", "2 * H"})
      .inout("v_cache", {"P", "B", "G", "2 * H"});
  if (norm) op.attribute("eps", 1e-6);
  op.size("E");
  op.loops(R"(
        { [u, g, d, h, j, q] : 0 <= u < T and 0 <= g < G and 0 <= d < 2 * H and 0 <= h < H and 0 <= j < 2 * H and 0 <= q < 2 * H }
)" + rotated_head("y", "u", "u, g", "E - 2", norm ? "k_norm" : "") +
           "k_cache[" + place + "] = y_r[u, g, d]\n" + "v_cache[" + place +
           "] = f32(qkv[u, (g * E + E - 1) * 2 * H + d])\n");
  op.tasks({"g"});
  op.body({.target = "cuda",
           .file = "append.cuh",
           .name = norm ? "append_norm" : "append_plain",
           .applies = heads_suit,
           .exchanged = {"qkv"},
           .paired = {"k_cache", "v_cache"}});
  op.test({{"T", 1}, {"G", 2}, {"E", 4}, {"H", 32}, {"S", 64}, {"P", 4}, {"B", 16}, {"R", 1}, {"Q", 4}});
  op.test({{"T", 1}, {"G", 3}, {"E", 5}, {"H", 12}, {"S", 20}, {"P", 60}, {"B", 1}, {"R", 3}, {"Q", 20}});
  return op;
}

/// kv_append from the fused projection, with rotation folded in.
graph::Operator kv_append_qkv() { return kv_append_of("kv_append_qkv", false); }

}  // namespace megalith::ops
