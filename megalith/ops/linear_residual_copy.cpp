#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// A linear, added to the residual, with a second, narrower copy of the result: the residual stream stays in f32 where it is added
/// to, and what is multiplied next travels in half the bytes.
graph::Operator linear_residual_copy() {
  return operator_("linear_residual_copy", "y = residual + x weight^T; copy = y")
      .input("x", {"T", "K"}, DType::bf16)
      .input("weight", {"N", "K"}, DType::bf16)
      .input("residual", {"T", "N"})
      .output("y", {"T", "N"})
      .output("copy", {"T", "N"}, DType::bf16)
      .loops(R"(
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n]    = f32(residual[t, n]) + sum(k, f32(x[t, k]) * f32(weight[n, k]))
        copy[t, n] = f32(y[t, n])
      )")
      .tasks({{"n", 8}, {"t", 1}})
      .body({.target = "cuda",
             .file = "linear.cuh",
             .name = "stream_linear_residual_copy",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return streams(q, "T", true) && q.sizes.at("N") % 2 == 0 && are_halves(q, {"x", "weight", "copy"}) &&
                          all_are(q, {"residual", "y"}, DType::f32);
                 },
             .exchanged = {"x", "residual", "y", "copy"},
             .area_bytes = multiply_area("T", true),
             .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "n", .splits = true},
             .job = "linear_run"})
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 38}, {"K", 136}});
}

}  // namespace megalith::ops
