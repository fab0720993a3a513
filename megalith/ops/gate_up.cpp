#include "megalith/ops/packed.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// The first half of a SwiGLU MLP (https://arxiv.org/abs/2002.05202) without its norm: for many rows, which are
/// normalised once for all workers.
graph::Operator gate_up() {
  return operator_("gate_up", "y = silu(x gate^T) * (x up^T)")
      .input("x", {"T", "K"})
      .input("gate", {"N", "K"}, DType::bf16)
      .input("up", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .loops(R"(
        { [t, n, k, l] : 0 <= t < T and 0 <= n < N and 0 <= k < K and 0 <= l < K }
        a[t, n] = sum(k, f32(x[t, k]) * f32(gate[n, k]))
        b[t, n] = sum(l, f32(x[t, l]) * f32(up[n, l]))
        y[t, n] = a[t, n] / (1 + exp(-a[t, n])) * b[t, n]
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(wide_body("wide_gate_up", {.operands = {"gate", "up"}, .axis = "n"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 40}, {"N", 70}, {"K", 264}});
}

}  // namespace megalith::ops
