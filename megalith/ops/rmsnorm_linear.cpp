#include "megalith/ops/packed.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// linear(rmsnorm(x)): every task works out the norm of its rows again, which costs less than waiting for another's.
graph::Operator rmsnorm_linear() {
  return operator_("rmsnorm_linear", "y = rmsnorm(x) weight^T")
      .input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("weight", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .loops(R"(
        { [t, n, j, k] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K }
        ss[t]   = sum(j, f32(x[t, j]) * f32(x[t, j]))
        y[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(weight[n, k]))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("rmsnorm_gemv", {"weight"}))
      .body({.target = "cuda",
             .file = "linear.cuh",
             .name = "stream_rmsnorm_linear",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return streams(q) && q.sizes.at("N") % 2 == 0 && are_halves(q, {"x", "norm", "weight"}) &&
                          dtype_is_half(q.dtypes.at("y"));
                 },
             .exchanged = {"x", "y"},
             .area_bytes = multiply_area(),
             .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "n"},
             .has_epilogue = true,
             .job = "linear_run",
             .ahead = "norm_ahead"})
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}});
}

}  // namespace megalith::ops
