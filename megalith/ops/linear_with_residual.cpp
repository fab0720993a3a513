#include "megalith/ops/packed.h"

namespace megalith::ops {

using graph::operator_;

/// y = residual + x weight^T: the projections that close attention and MLP.
graph::Operator linear_with_residual() {
  return operator_("linear_with_residual", "y = residual + x weight^T")
      .input("x", {"T", "K"})
      .input("weight", {"N", "K"}, DType::bf16)
      .input("residual", {"T", "N"})
      .output("y", {"T", "N"})
      .loops(R"(
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = f32(residual[t, n]) + sum(k, f32(x[t, k]) * f32(weight[n, k]))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("gemv_with_residual", {"weight"}, "n", {"residual"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}})
      .test({{"T", 33}, {"N", 70}, {"K", 776}});
}

}  // namespace megalith::ops
