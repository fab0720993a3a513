#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Layer normalisation of each row (https://arxiv.org/abs/1607.06450).
graph::Operator layernorm() {
  return operator_("layernorm", "y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, row by row")
      .input("x", {"T", "H"})
      .input("weight", {"H"}, DType::bf16)
      .input("bias", {"H"}, DType::bf16)
      .output("y", {"T", "H"})
      .attribute("eps", 1e-5)
      .loops(R"(
        { [t, h, j, k] : 0 <= t < T and 0 <= h < H and 0 <= j < H and 0 <= k < H }
        mean[t] = sum(j, f32(x[t, j])) / H
        ss[t]   = sum(k, (f32(x[t, k]) - mean[t]) * (f32(x[t, k]) - mean[t]))
        y[t, h] = (f32(x[t, h]) - mean[t]) * rsqrt(ss[t] / H + eps) * f32(weight[h]) + f32(bias[h])
      )")
      .tasks({"t"})
      .test({{"T", 1}, {"H", 64}})
      .test({{"T", 3}, {"H", 4096}})
      .test({{"T", 5}, {"H", 33}});
}

}  // namespace megalith::ops
