#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// rmsnorm of every head of a row by itself (the q/k norm of Qwen3): A heads of D values.
graph::Operator head_norm() {
  return operator_("head_norm", "rmsnorm of each head of each row")
      .input("x", {"T", "A * D"})
      .input("weight", {"D"}, DType::bf16)
      .output("y", {"T", "A * D"})
      .attribute("eps", 1e-6)
      .loops(R"(
        { [t, a, d, k] : 0 <= t < T and 0 <= a < A and 0 <= d < D and 0 <= k < D }
        ss[t, a]        = sum(k, f32(x[t, a * D + k]) * f32(x[t, a * D + k]))
        y[t, a * D + d] = f32(x[t, a * D + d]) * rsqrt(ss[t, a] / D + eps) * f32(weight[d])
      )")
      .tasks({"a", "t"})
      .test({{"T", 1}, {"A", 4}, {"D", 64}})
      .test({{"T", 3}, {"A", 3}, {"D", 80}});
}

}  // namespace megalith::ops
