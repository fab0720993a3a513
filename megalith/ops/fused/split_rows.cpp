#include "megalith/graph/operator.h"
#include "megalith/ops/registry.h"

namespace megalith::ops {

using graph::operator_;

/// split_heads, of as many rows as `qkv` has.
std::vector<graph::Operator> split_rows() {
  return {operator_("split_rows", "q, k, v = the heads of qkv, which stand group by group")
              .input("qkv", {"T", "G * E * D"})
              .output("q", {"T", "G * M * D"})
              .output("k", {"T", "G * D"})
              .output("v", {"T", "G * D"})
              .size("G")
              .size("E")
              .composed("q, k, v = split_heads(qkv; D = D, T = T, G = G, E = E, M = M)\n", single())
              .tasks({"g", "t"})
              .test({{"T", 1}, {"G", 2}, {"E", 4}, {"M", 2}, {"D", 64}})
              .test({{"T", 3}, {"G", 3}, {"E", 3}, {"M", 1}, {"D", 80}})};
}

}  // namespace megalith::ops
