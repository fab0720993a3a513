#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Rotary position embedding (https://arxiv.org/abs/2104.09864), halves convention: value m of a head turns together
/// with value m + M. `cosine` and `sine` are tables by position, made when the model is loaded.
graph::Operator rope() {
  return operator_("rope", "rotates each head of each token by its position")
      .input("x", {"T", "A * M * 2"})
      .input("cosine", {"S", "M"})
      .input("sine", {"S", "M"})
      .index("position", {"T"}, "S")
      .output("y", {"T", "A * M * 2"})
      .loops(R"(
        { [t, a, m] : 0 <= t < T and 0 <= a < A and 0 <= m < M }
        y[t, a * 2 * M + m]     = f32(x[t, a * 2 * M + m]) * cosine[position[t], m] - f32(x[t, a * 2 * M + M + m]) * sine[position[t], m]
        y[t, a * 2 * M + M + m] = f32(x[t, a * 2 * M + M + m]) * cosine[position[t], m] + f32(x[t, a * 2 * M + m]) * sine[position[t], m]
      )")
      .tasks({"a", "t"})
      .test({{"T", 1}, {"A", 4}, {"M", 32}, {"S", 8}})
      .test({{"T", 3}, {"A", 3}, {"M", 40}, {"S", 100}});
}

}  // namespace megalith::ops
