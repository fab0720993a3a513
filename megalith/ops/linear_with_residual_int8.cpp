#include "megalith/ops/packed.h"

namespace megalith::ops {

using graph::operator_;

/// linear_with_residual with weights as linear_int8 has them.
graph::Operator linear_with_residual_int8() {
  return operator_("linear_with_residual_int8", "y = residual + x (weight * scale)^T")
      .input("x", {"T", "K"})
      .input("weight", {"N", "K"}, DType::i8)
      .input("scale", {"N", "G"}, DType::bf16)
      .input("residual", {"T", "N"})
      .output("y", {"T", "N"})
      .size("L")
      .loops(R"(
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = f32(residual[t, n]) + sum(k, f32(x[t, k]) * (f32(weight[n, k]) * f32(scale[n, k // L])))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("gemv_with_residual_int8", {"weight", "scale"}, "n", {"residual"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

}  // namespace megalith::ops
