#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Root-mean-square normalisation of each row (https://arxiv.org/abs/1910.07467).
graph::Operator rmsnorm() {
  return operator_("rmsnorm", "y = x / rms(x) * weight, row by row")
      .input("x", {"T", "H"})
      .input("weight", {"H"}, DType::bf16)
      .output("y", {"T", "H"})
      .attribute("eps", 1e-6)
      .loops(R"(
        { [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < H }
        ss[t]   = sum(k, f32(x[t, k]) * f32(x[t, k]))
        y[t, h] = f32(x[t, h]) * rsqrt(ss[t] / H + eps) * f32(weight[h])
      )")
      .tasks({"t"})
      .body({.target = "cuda",
             .file = "rowwise/rmsnorm.cuh",
             .name = "rmsnorm_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return q.sizes.at("H") % 2 == 0 && q.sizes.at("H") <= 16384 && dtype_is_half(q.dtypes.at("weight"));
                 },
             .blocked = {"y"},
             .prefetch = "rmsnorm_rows_ahead"})
      .test({{"T", 1}, {"H", 64}})
      .test({{"T", 3}, {"H", 4096}})
      .test({{"T", 5}, {"H", 33}});
}

}  // namespace megalith::ops
