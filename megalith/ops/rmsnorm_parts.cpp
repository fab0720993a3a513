#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// What a norm that is deferred needs of its rows (optimize/defer_norm.cpp): each times the norm's weight, and its squares
/// added up over each L columns. With `factor` for dtypes in which a row would not fit otherwise.
graph::Operator rmsnorm_parts() {
  return operator_("rmsnorm_parts", "scaled = x * weight; squares = sums of x^2 over each L columns")
      .input("x", {"T", "C * L"})
      .input("weight", {"C * L"}, DType::bf16)
      .output("scaled", {"T", "C * L"}, DType::bf16)
      .output("squares", {"T", "C"})
      .exactly()
      .attribute("factor", 1)
      .size("L")
      .loops(R"(
        { [t, c, l, j] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= j < L }
        scaled[t, c * L + l] = f32(x[t, c * L + l]) * factor * f32(weight[c * L + l])
        squares[t, c]        = sum(j, f32(x[t, c * L + j]) * factor * (f32(x[t, c * L + j]) * factor))
      )")
      .tasks({"c", "t"})
      .test({{"T", 1}, {"C", 2}, {"L", 32}})
      .test({{"T", 3}, {"C", 5}, {"L", 7}});
}

/// The rest of a norm that was deferred (optimize/defer_norm.cpp): what was made of rows of K columns, whose squares
/// `squares` adds up to.
graph::Operator rmsnorm_scale() {
  return operator_("rmsnorm_scale", "y = x / rms, of rows whose squares are summed in parts")
      .input("x", {"T", "N"})
      .input("squares", {"T", "C"})
      .exactly()
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .size("K")
      .loops(R"(
        { [t, n, c] : 0 <= t < T and 0 <= n < N and 0 <= c < C }
        ss[t]   = sum(c, f32(squares[t, c]))
        y[t, n] = rsqrt(ss[t] / K + eps) * f32(x[t, n])
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .test({{"T", 1}, {"N", 64}, {"C", 2}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"C", 5}, {"K", 129}});
}

}  // namespace megalith::ops
