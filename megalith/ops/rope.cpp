#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Rotary position embedding (https://arxiv.org/abs/2104.09864), halves convention: value m of a head turns together
/// with value m + M, its partner. `cosine` and `sine` are tables by position: the first M of W columns are for values m,
/// the last M for their partners. With W = M both take the same ones; with W = 2 M, as models keep them whose tables are
/// made for whole heads, each has its own.
graph::Operator rope() {
  return operator_("rope", "rotates each head of each token by its position")
      .input("x", {"T", "A * M * 2"})
      .input("cosine", {"S", "W"})
      .input("sine", {"S", "W"})
      .index("position", {"T"}, "S")
      .output("y", {"T", "A * M * 2"})
      .size("M")
      .loops(R"(
        { [t, a, m] : 0 <= t < T and 0 <= a < A and 0 <= m < M }
        y[t, a * 2 * M + m]     = f32(x[t, a * 2 * M + m]) * f32(cosine[position[t], m]) - f32(x[t, a * 2 * M + M + m]) * f32(sine[position[t], m])
        y[t, a * 2 * M + M + m] = f32(x[t, a * 2 * M + M + m]) * f32(cosine[position[t], W - M + m]) + f32(x[t, a * 2 * M + m]) * f32(sine[position[t], W - M + m])
      )")
      .tasks({"a", "t"})
      .test({{"T", 1}, {"A", 4}, {"M", 32}, {"W", 32}, {"S", 8}})
      .test({{"T", 3}, {"A", 3}, {"M", 40}, {"W", 40}, {"S", 100}})
      .test({{"T", 3}, {"A", 3}, {"M", 40}, {"W", 80}, {"S", 100}});
}

}  // namespace megalith::ops
