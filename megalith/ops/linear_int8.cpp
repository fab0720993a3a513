#include "megalith/ops/packed.h"

namespace megalith::ops {

using graph::operator_;

/// linear with a weight of whole numbers and a scale for each row and L columns of it; the last group may be shorter.
graph::Operator linear_int8() {
  return operator_("linear_int8", "y = x (weight * scale)^T")
      .input("x", {"T", "K"})
      .input("weight", {"N", "K"}, DType::i8)
      .input("scale", {"N", "G"}, DType::bf16)
      .output("y", {"T", "N"})
      .size("L")
      .loops(R"(
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = sum(k, f32(x[t, k]) * (f32(weight[n, k]) * f32(scale[n, k // L])))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("gemv_int8", {"weight", "scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}})
      .test({{"T", 17}, {"N", 16}, {"K", 1000}, {"G", 8}, {"L", 128}});
}

}  // namespace megalith::ops
