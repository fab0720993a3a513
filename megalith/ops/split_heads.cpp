#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Takes a fused projection apart: of each of G groups the M query heads, their key and their value, of D values each
/// (E = M + 2 heads). `qkv` may have room for more rows than there are today.
graph::Operator split_heads() {
  return operator_("split_heads", "q, k, v = the heads of qkv, which stand group by group")
      .input("qkv", {"U", "G * E * D"})
      .output("q", {"T", "G * M * D"})
      .output("k", {"T", "G * D"})
      .output("v", {"T", "G * D"})
      .size("G")
      .size("E")
      .loops(R"(
        { [t, g, m, d] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= d < D }
        q[t, (g * M + m) * D + d] = f32(qkv[t, (g * E + m) * D + d])
        k[t, g * D + d]           = f32(qkv[t, (g * E + M) * D + d])
        v[t, g * D + d]           = f32(qkv[t, (g * E + M + 1) * D + d])
      )")
      .tasks({"g", "t"})
      .test({{"U", 1}, {"T", 1}, {"G", 2}, {"E", 4}, {"M", 2}, {"D", 64}})
      .test({{"U", 5}, {"T", 3}, {"G", 3}, {"E", 3}, {"M", 1}, {"D", 80}});
}

}  // namespace megalith::ops
