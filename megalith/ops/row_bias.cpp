#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The bias of a projection (Qwen2's q, k and v). On a GPU the projection adds it where it writes (optimize/fuse_epilogue.h).
graph::Operator row_bias() {
  return operator_("row_bias", "y = x + bias, the same bias in every row")
      .input("x", {"T", "N"})
      .input("bias", {"N"}, DType::bf16)
      .output("y", {"T", "N"})
      .loops(R"(
        { [t, n] : 0 <= t < T and 0 <= n < N }
        y[t, n] = f32(x[t, n]) + f32(bias[n])
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .test({{"T", 1}, {"N", 64}})
      .test({{"T", 3}, {"N", 77}});
}

}  // namespace megalith::ops
