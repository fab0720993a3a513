#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// The first half of a SwiGLU MLP (https://arxiv.org/abs/2002.05202), with its norm as scaled_linear has it.
graph::Operator scaled_gate_up() {
  return operator_("scaled_gate_up", "y = silu(x gate^T / rms) * (x up^T / rms), with squares summed in parts")
      .input("x", {"T", "K"})
      .input("squares", {"T", "C"})
      .exactly()
      .input("gate", {"N", "K"}, DType::bf16)
      .input("up", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .loops(R"(
        { [t, n, c, k, l] : 0 <= t < T and 0 <= n < N and 0 <= c < C and 0 <= k < K and 0 <= l < K }
        ss[t]   = sum(c, f32(squares[t, c]))
        a[t, n] = rsqrt(ss[t] / K + eps) * sum(k, f32(x[t, k]) * f32(gate[n, k]))
        b[t, n] = rsqrt(ss[t] / K + eps) * sum(l, f32(x[t, l]) * f32(up[n, l]))
        y[t, n] = a[t, n] / (1 + exp(-a[t, n])) * b[t, n]
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(few_body("stream_scaled_gate_up", {.operands = {"gate", "up"}, .axis = "n"}))
      .body(wide_body("wide_scaled_gate_up", {.operands = {"gate", "up"}, .axis = "n"}))
      .test({{"T", 1}, {"N", 64}, {"C", 2}, {"K", 64}})
      .test({{"T", 4}, {"N", 38}, {"C", 4}, {"K", 128}})
      .test({{"T", 7}, {"N", 70}, {"C", 9}, {"K", 544}})
      .test({{"T", 40}, {"N", 70}, {"C", 9}, {"K", 264}});
}

}  // namespace megalith::ops
