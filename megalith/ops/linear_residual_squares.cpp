#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// A linear, added to the residual, and what scaled_linear and scaled_gate_up make of its rows' norm: each row times the norm's
/// weight, and its squares, summed over each L columns. Nobody has to wait for a whole row to be normalised, and who
/// multiplies it finds the scale in C numbers.
graph::Operator linear_residual_squares() {
  return operator_("linear_residual_squares", "y = residual + x weight^T; copy = y * norm; squares = sums of y^2")
      .input("x", {"T", "K"})
      .input("weight", {"C * L", "K"}, DType::bf16)
      .input("residual", {"T", "C * L"})
      .exactly()
      .input("norm", {"C * L"}, DType::bf16)
      .output("y", {"T", "C * L"})
      .exactly()
      .output("copy", {"T", "C * L"}, DType::bf16)
      .output("squares", {"T", "C"})
      .exactly()
      .attribute("factor", 1)
      .size("L")
      .loops(R"(
        { [t, c, l, j, k] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= j < L and 0 <= k < K }
        y[t, c * L + l]    = f32(residual[t, c * L + l]) + sum(k, f32(x[t, k]) * f32(weight[c * L + l, k]))
        copy[t, c * L + l] = f32(y[t, c * L + l]) * factor * f32(norm[c * L + l])
        squares[t, c]      = sum(j, f32(y[t, c * L + j]) * factor * (f32(y[t, c * L + j]) * factor))
      )")
      .tasks({"c", "t"})
      .body(few_body("stream_linear_residual_squares",
                     {.operands = {"weight"}, .axis = "c", .step = "L", .splits = true}))
      .body(wide_body("wide_linear_residual_squares", {.operands = {"weight"}, .axis = "c", .step = "L"}))
      .test({{"T", 1}, {"C", 2}, {"L", 32}, {"K", 64}})
      .test({{"T", 3}, {"C", 5}, {"L", 7}, {"K", 129}})
      .test({{"T", 4}, {"C", 5}, {"L", 8}, {"K", 192}})
      .test({{"T", 8}, {"C", 5}, {"L", 16}, {"K", 544}})
      .test({{"T", 33}, {"C", 3}, {"L", 32}, {"K", 776}})
      .test({{"T", 64}, {"C", 5}, {"L", 32}, {"K", 544}});
}

}  // namespace megalith::ops
