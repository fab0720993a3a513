#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The row of the table for each token id.
graph::Operator embedding() {
  return operator_("embedding", "y[t] = weight[ids[t]]")
      .index("ids", {"T"}, "V")
      .input("weight", {"V", "H"}, DType::bf16)
      .output("y", {"T", "H"})
      .loops(R"(
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = f32(weight[ids[t], h])
      )")
      .tasks({{"h", 16}, {"t", 1}})
      .body({.target = "cuda",
             .file = "rowwise/gather.cuh",
             .name = "embedding_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   const DType y = q.dtypes.at("y");
                   return dtype_is_half(q.dtypes.at("weight")) && (dtype_is_half(y) || y == DType::f32) &&
                          q.sizes.at("H") % 2 == 0;
                 },
             .exchanged = {"y"}})
      .test({{"T", 1}, {"V", 7}, {"H", 64}})
      .test({{"T", 5}, {"V", 501}, {"H", 33}});
}

}  // namespace megalith::ops
