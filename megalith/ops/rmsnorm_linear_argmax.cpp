#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// The head of a language model with the search for the likeliest token begun: the logits, and the largest of each
/// chunk of L columns with the lowest column that has it.
graph::Operator rmsnorm_linear_argmax() {
  return operator_("rmsnorm_linear_argmax", "logits = rmsnorm(x) weight^T, and the largest of each chunk")
      .input("x", {"R", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("weight", {"V", "K"}, DType::bf16)
      .output("logits", {"R", "V"})
      .output("value", {"R", "C"})
      .output("index", {"R", "C"}, DType::i32)
      .attribute("eps", 1e-6)
      .size("C")
      .size("L")
      .loops(R"(
        { [r, c, v, j, k] : 0 <= r < R and 0 <= c < C and 0 <= v < L and 0 <= j < K and 0 <= k < K }
        ss[r]        = sum(j, f32(x[r, j]) * f32(x[r, j]))
        y[r, c, v]   = sum(k, f32(x[r, k]) * rsqrt(ss[r] / K + eps) * f32(norm[k]) * f32(weight[c * L + v, k]))  {if=c * L + v < V}
        logits[r, c * L + v] = y[r, c, v]  {if=c * L + v < V}
        value[r, c]  = max(v, y[r, c, v], c * L + v < V)
        index[r, c]  = c * L + argmax(v, y[r, c, v], c * L + v < V)
      )")
      .tasks({"c", "r"})
      .body({.target = "cuda",
             .file = "linear.cuh",
             .name = "stream_rmsnorm_linear_argmax",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return streams(q, "R") && q.sizes.at("L") == 128 && are_halves(q, {"x", "norm", "weight"}) &&
                          all_are(q, {"logits", "value"}, DType::f32);
                 },
             .exchanged = {"x", "value", "index"},
             .area_bytes = multiply_area("R"),
             .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "c", .step = "L", .activations = "R"},
             .ahead = "norm_ahead"})
      .test({{"R", 1}, {"V", 64}, {"K", 64}, {"C", 4}, {"L", 16}})
      .test({{"R", 3}, {"V", 77}, {"K", 136}, {"C", 5}, {"L", 16}})
      .test({{"R", 2}, {"V", 300}, {"K", 64}, {"C", 3}, {"L", 128}});
}

}  // namespace megalith::ops
