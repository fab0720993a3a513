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

}  // namespace megalith::ops
