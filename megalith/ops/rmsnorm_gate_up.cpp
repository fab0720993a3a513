#include "megalith/ops/packed.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// The first half of a SwiGLU MLP (https://arxiv.org/abs/2002.05202) in one: norm, both projections and the gate.
graph::Operator rmsnorm_gate_up() {
  return operator_("rmsnorm_gate_up", "y = silu(rmsnorm(x) gate^T) * (rmsnorm(x) up^T)")
      .input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("gate", {"N", "K"}, DType::bf16)
      .input("up", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .loops(R"(
        { [t, n, j, k, l] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K and 0 <= l < K }
        ss[t]   = sum(j, f32(x[t, j]) * f32(x[t, j]))
        a[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(gate[n, k]))
        b[t, n] = sum(l, f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l]) * f32(up[n, l]))
        y[t, n] = a[t, n] / (1 + exp(-a[t, n])) * b[t, n]
      )")
      .tasks({{"n", 8}, {"t", 1}})
      .body(panel_body("rmsnorm_gate_up_gemv", {"gate", "up"}))
      .body({.target = "cuda",
             .file = "linear.cuh",
             .name = "stream_rmsnorm_gate_up",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return streams(q) && q.sizes.at("N") % 2 == 0 && are_halves(q, {"x", "norm", "gate", "up", "y"});
                 },
             .exchanged = {"x", "y"},
             .area_bytes = multiply_area(),
             .streamed = graph::StreamedWeights{.operands = {"gate", "up"}, .axis = "n"},
             .job = "linear_run",
             .ahead = "norm_ahead"})
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 38}, {"K", 136}});
}

}  // namespace megalith::ops
