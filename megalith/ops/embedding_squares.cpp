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
      .attribute("factor", 1)
      .size("L")
      .loops(R"(
        { [t, c, l, j] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= j < L }
        y[t, c * L + l]    = f32(weight[ids[t], c * L + l])
        copy[t, c * L + l] = f32(y[t, c * L + l]) * factor * f32(norm[c * L + l])
        squares[t, c]      = sum(j, f32(y[t, c * L + j]) * factor * (f32(y[t, c * L + j]) * factor))
      )")
      .tasks({"t"})
      .body({.target = "cuda",
             .file = "norm.cuh",
             .name = "embedding_squares_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   const int64_t columns = q.sizes.at("L");
                   return are_halves(q, {"weight", "norm"}) && dtype_is_half(q.dtypes.at("copy")) &&
                          (columns == 8 || columns == 16 || columns == 32) && q.sizes.at("C") * columns <= 16384;
                 },
             .exchanged = {"y"},
             .blocked = {"copy"}})
      .test({{"T", 1}, {"V", 7}, {"C", 2}, {"L", 32}})
      .test({{"T", 5}, {"V", 501}, {"C", 37}, {"L", 32}})
      .test({{"T", 4}, {"V", 19}, {"C", 9}, {"L", 8}})
      .test({{"T", 8}, {"V", 19}, {"C", 9}, {"L", 16}})
      .test({{"T", 3}, {"V", 19}, {"C", 5}, {"L", 7}});
}

}  // namespace megalith::ops
