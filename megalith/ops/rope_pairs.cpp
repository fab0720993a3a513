#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// rope with tables as wide as a head: value m of a head and its partner m + M have a column each, as models keep them
/// whose tables are made for all heads at once.
graph::Operator rope_pairs() {
  return operator_("rope_pairs", "rotates each head of each token by its position; tables as wide as a head")
      .input("x", {"T", "A * M * 2"})
      .input("cosine", {"S", "M * 2"})
      .input("sine", {"S", "M * 2"})
      .index("position", {"T"}, "S")
      .output("y", {"T", "A * M * 2"})
      .loops(R"(
        { [t, a, m] : 0 <= t < T and 0 <= a < A and 0 <= m < M }
        y[t, a * 2 * M + m]     = f32(x[t, a * 2 * M + m]) * f32(cosine[position[t], m]) - f32(x[t, a * 2 * M + M + m]) * f32(sine[position[t], m])
        y[t, a * 2 * M + M + m] = f32(x[t, a * 2 * M + M + m]) * f32(cosine[position[t], M + m]) + f32(x[t, a * 2 * M + m]) * f32(sine[position[t], M + m])
      )")
      .tasks({"a", "t"})
      .test({{"T", 1}, {"A", 4}, {"M", 32}, {"S", 8}})
      .test({{"T", 3}, {"A", 3}, {"M", 40}, {"S", 100}});
}

}  // namespace megalith::ops
