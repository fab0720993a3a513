#include "megalith/kernels/row_blocks.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// embedding, and what the first layer makes of its rows' norm, as linear_residual_squares has it.
graph::Operator embedding_squares() {
  return operator_("embedding_squares", "y[t] = weight[ids[t]]; copy = y * norm; squares = sums of y^2")
      .index("ids", {"T"}, "V")
      .input("weight", {"V", "C * L"}, DType::bf16)
      .input("norm", {"C * L"}, DType::bf16)
      .output("y", {"T", "C * L"})
      .exactly()
      .output("copy", {"T", "C * L"}, DType::bf16)
      .output("squares", {"T", "C"})
      .exactly()
      .size("L")
      .loops(R"(
        { [t, c, l, j] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= j < L }
        y[t, c * L + l]    = f32(weight[ids[t], c * L + l])
        copy[t, c * L + l] = f32(y[t, c * L + l]) * f32(norm[c * L + l])
        squares[t, c]      = sum(j, f32(y[t, c * L + j]) * f32(y[t, c * L + j]))
      )")
      .tasks({"t"})
      .body({.target = "cuda",
             .file = "norm.cuh",
             .name = "embedding_squares_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return all_are(q, {"weight", "norm", "copy"}, DType::bf16) &&
                          q.sizes.at("L") == row_blocks::kColumns && q.sizes.at("C") * q.sizes.at("L") <= 16384;
                 },
             .blocked = {"copy"}})
      .test({{"T", 1}, {"V", 7}, {"C", 2}, {"L", 32}})
      .test({{"T", 5}, {"V", 501}, {"C", 37}, {"L", 32}})
      .test({{"T", 3}, {"V", 19}, {"C", 5}, {"L", 7}});
}

}  // namespace megalith::ops
