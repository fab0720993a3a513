#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// silu_mul of one tensor that holds both: G groups of columns, each L gates and then their L ups, as one projection
/// of weights that were stacked in G rounds makes them.
graph::Operator silu_mul_groups() {
  return operator_("silu_mul_groups", "y = silu(gates) * ups, which take turns in x, L columns each")
      .input("x", {"T", "G * 2 * L"})
      .output("y", {"T", "G * L"})
      .size("G")
      .loops(R"(
        { [t, g, l] : 0 <= t < T and 0 <= g < G and 0 <= l < L }
        y[t, g * L + l] = f32(x[t, g * 2 * L + l]) / (1 + exp(-f32(x[t, g * 2 * L + l]))) * f32(x[t, g * 2 * L + L + l])
      )")
      .tasks({{"g", 1}, {"l", 16}, {"t", 1}})
      .test({{"T", 1}, {"G", 1}, {"L", 64}})
      .test({{"T", 3}, {"G", 4}, {"L", 19}});
}

}  // namespace megalith::ops
