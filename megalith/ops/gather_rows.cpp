#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Picks rows by number: of all rows of a chunk only the last of each prompt goes on to the vocabulary.
graph::Operator gather_rows() {
  return operator_("gather_rows", "y[r] = x[rows[r]]")
      .input("x", {"T", "H"})
      .index("rows", {"R"}, "T")
      .output("y", {"R", "H"})
      .loops(R"(
        { [r, h] : 0 <= r < R and 0 <= h < H }
        y[r, h] = f32(x[rows[r], h])
      )")
      .tasks({"r"})
      .body({.target = "cuda",
             .file = "rowwise/gather.cuh",
             .name = "gather_token_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   const DType x = q.dtypes.at("x");
                   const DType y = q.dtypes.at("y");
                   return (dtype_is_half(x) || x == DType::f32) && (dtype_is_half(y) || y == DType::f32) &&
                          q.sizes.at("H") % 2 == 0;
                 },
             .exchanged = {"x", "y"},
             .blocked = {"x"}})
      .test({{"T", 5}, {"R", 1}, {"H", 64}})
      .test({{"T", 7}, {"R", 3}, {"H", 33}});
}

}  // namespace megalith::ops
