#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

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
