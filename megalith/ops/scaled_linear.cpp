#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// linear(rmsnorm(x)) where x has the norm's weight already and `squares` adds up to the squares of what it was before
/// (linear_residual_squares): the norm's scale is left, which the sums of a row have in common.
graph::Operator scaled_linear() {
  return operator_("scaled_linear", "y = x weight^T / rms, with the squares of a row summed in parts")
      .input("x", {"T", "K"})
      .input("squares", {"T", "C"})
      .exactly()
      .input("weight", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .loops(R"(
        { [t, n, c, k] : 0 <= t < T and 0 <= n < N and 0 <= c < C and 0 <= k < K }
        ss[t]   = sum(c, f32(squares[t, c]))
        y[t, n] = rsqrt(ss[t] / K + eps) * sum(k, f32(x[t, k]) * f32(weight[n, k]))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(with_epilogue(few_body("stream_scaled_linear", {.operands = {"weight"}, .axis = "n"})))
      .body(with_epilogue(wide_body("wide_scaled_linear", {.operands = {"weight"}, .axis = "n"})))
      .test({{"T", 1}, {"N", 64}, {"C", 2}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"C", 5}, {"K", 129}})
      .test({{"T", 3}, {"N", 38}, {"C", 5}, {"K", 192}})
      .test({{"T", 8}, {"N", 70}, {"C", 17}, {"K", 544}})
      .test({{"T", 17}, {"N", 16}, {"C", 32}, {"K", 1000}})
      .test({{"T", 64}, {"N", 78}, {"C", 17}, {"K", 544}})
      .test({{"T", 9}, {"N", 6150}, {"C", 1}, {"K", 168}});
}

}  // namespace megalith::ops
