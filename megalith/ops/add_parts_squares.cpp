#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// What is left to do behind linear_part, so that both are linear_residual_squares.
graph::Operator add_parts_squares() {
  return operator_("add_parts_squares", "y = residual + sum of the parts; copy = y * norm; squares = sums of y^2")
      .input("part", {"S", "T", "C * L"})
      .exactly()
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
        { [t, c, l, j, s] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= j < L and 0 <= s < S }
        y[t, c * L + l]    = f32(residual[t, c * L + l]) + sum(s, part[s, t, c * L + l])
        copy[t, c * L + l] = f32(y[t, c * L + l]) * factor * f32(norm[c * L + l])
        squares[t, c]      = sum(j, f32(y[t, c * L + j]) * factor * (f32(y[t, c * L + j]) * factor))
      )")
      .tasks({"c", "t"})
      .body({.target = "cuda",
             .file = "norm.cuh",
             .name = "add_parts_squares_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return q.sizes.at("L") == 32 && q.sizes.at("T") > stream::kMaxRows && q.sizes.at("S") <= 8 &&
                          all_are(q, {"part", "residual", "y"}, DType::f32) && dtype_is_half(q.dtypes.at("norm")) &&
                          dtype_is_half(q.dtypes.at("copy"));
                 },
             .blocked = {"copy"}})
      .test({{"S", 2}, {"T", 1}, {"C", 2}, {"L", 32}})
      .test({{"S", 3}, {"T", 3}, {"C", 5}, {"L", 7}})
      .test({{"S", 4}, {"T", 33}, {"C", 3}, {"L", 32}})
      .test({{"S", 8}, {"T", 128}, {"C", 2}, {"L", 32}});
}

}  // namespace megalith::ops
