#include "megalith/ops/packed.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// y = x weight^T, the weight stored one output after the other (out_features, in_features) as checkpoints have it.
graph::Operator linear() {
  return operator_("linear", "y = x weight^T")
      .input("x", {"T", "K"})
      .input("weight", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .loops(R"(
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = sum(k, f32(x[t, k]) * f32(weight[n, k]))
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("gemv", {"weight"}))
      .body(with_epilogue(
          streaming({.target = "cuda",
                     .file = "mainloop/gemv.cuh",
                     .name = "gemv_linear",
                     .applies =
                         [](const graph::BodyQuery& q) {
                           return streams(q, "T", true) && q.sizes.at("N") % 2 == 0 && are_halves(q, {"x", "weight"});
                         },
                     .exchanged = {"x", "y"},
                     .blocked = {"x", "y"},
                     .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "n", .splits = true}})))
      .body(with_epilogue(wide_body("gemm_linear", {.operands = {"weight"}, .axis = "n"})))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}})
      .test({{"T", 2}, {"N", 46}, {"K", 136}})
      .test({{"T", 4}, {"N", 38}, {"K", 192}})
      .test({{"T", 8}, {"N", 70}, {"K", 544}})
      .test({{"T", 17}, {"N", 16}, {"K", 1000}})
      .test({{"T", 64}, {"N", 78}, {"K", 544}})
      .test({{"T", 208}, {"N", 34}, {"K", 96}})
      .test({{"T", 272}, {"N", 6}, {"K", 96}})
      .test({{"T", 9}, {"N", 6150}, {"K", 8}})
      .test({{"T", 9}, {"N", 32770}, {"K", 8}});
}

}  // namespace megalith::ops
