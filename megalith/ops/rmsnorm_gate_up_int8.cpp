#include "megalith/ops/packed.h"

namespace megalith::ops {

using graph::operator_;

/// rmsnorm_gate_up with weights as linear_int8 has them.
graph::Operator rmsnorm_gate_up_int8() {
  return operator_("rmsnorm_gate_up_int8", "y = silu(rmsnorm(x) gate^T) * (rmsnorm(x) up^T), both times their scales")
      .input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("gate", {"N", "K"}, DType::i8)
      .input("gate_scale", {"N", "G"}, DType::bf16)
      .input("up", {"N", "K"}, DType::i8)
      .input("up_scale", {"N", "G"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .size("L")
      .loops(R"(
        { [t, n, j, k, l] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K and 0 <= l < K }
        ss[t]   = sum(j, f32(x[t, j]) * f32(x[t, j]))
        a[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * (f32(gate[n, k]) * f32(gate_scale[n, k // L])))
        b[t, n] = sum(l, f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l]) * (f32(up[n, l]) * f32(up_scale[n, l // L])))
        y[t, n] = a[t, n] / (1 + exp(-a[t, n])) * b[t, n]
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("rmsnorm_gate_up_gemv_int8", {"gate", "gate_scale", "up", "up_scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

}  // namespace megalith::ops
