#include "megalith/graph/operator.h"

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
      .body("cpu", "gemv.h", "gemv_with_residual",
            [](const graph::BodyQuery& q) {
              return q.dtypes.at("weight") == DType::bf16 && q.dtypes.at("x") == DType::f32 &&
                     q.dtypes.at("residual") == DType::f32 && q.dtypes.at("y") == DType::f32;
            })
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}});
}

}  // namespace megalith::ops
