#include "megalith/ops/packed.h"

namespace megalith::ops {

using graph::operator_;

/// rmsnorm_linear with weights as linear_int8 has them.
graph::Operator rmsnorm_linear_int8() {
  return operator_("rmsnorm_linear_int8", "y = rmsnorm(x) (weight * scale)^T")
      .input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("weight", {"N", "K"}, DType::i8)
      .input("scale", {"N", "G"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .size("L")
      .loops(R"(
        { [t, n, j, k] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K }
        ss[t]   = sum(j, f32(x[t, j]) * f32(x[t, j]))
        y[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * (f32(weight[n, k]) * f32(scale[n, k // L])))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("rmsnorm_gemv_int8", {"weight", "scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

}  // namespace megalith::ops
