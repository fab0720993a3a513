#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The sums of a linear over S stretches of L columns, each by itself: where there are fewer tiles of rows than
/// workers. add_parts puts them together. How many stretches there are is part of the meaning, so the sums have one
/// order on any number of workers.
graph::Operator linear_part() {
  return operator_("linear_part", "part[s] = x weight^T over the columns of stretch s")
      .input("x", {"T", "S * L"})
      .input("weight", {"N", "S * L"}, DType::bf16)
      .output("part", {"S", "T", "N"})
      .exactly()
      .size("S")
      .loops(R"(
        { [s, t, n, k] : 0 <= s < S and 0 <= t < T and 0 <= n < N and 0 <= k < L }
        part[s, t, n] = sum(k, f32(x[t, s * L + k]) * f32(weight[n, s * L + k]))
      )")
      .tasks({{"n", 16}, {"s", 1}})
      .test({{"T", 1}, {"N", 64}, {"S", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"S", 3}, {"L", 43}});
}

}  // namespace megalith::ops
