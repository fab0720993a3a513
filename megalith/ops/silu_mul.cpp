#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The gate of a SwiGLU MLP (https://arxiv.org/abs/2002.05202): silu(gate) * up.
graph::Operator silu_mul() {
  return operator_("silu_mul", "y = gate / (1 + exp(-gate)) * up")
      .input("gate", {"T", "I"})
      .input("up", {"T", "I"})
      .output("y", {"T", "I"})
      .loops(R"(
        { [t, i] : 0 <= t < T and 0 <= i < I }
        y[t, i] = f32(gate[t, i]) / (1 + exp(-f32(gate[t, i]))) * f32(up[t, i])
      )")
      .tasks({{"i", 16}, {"t", 1}})
      .test({{"T", 1}, {"I", 64}})
      .test({{"T", 3}, {"I", 77}});
}

}  // namespace megalith::ops
