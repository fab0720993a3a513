#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

/// The head of a language model for many rows, which are normalised already: the logits, and the largest of each chunk
/// of L columns with the lowest column that has it.
graph::Operator linear_argmax() {
  return operator_("linear_argmax", "logits = x weight^T, and the largest of each chunk")
      .input("x", {"T", "K"})
      .input("weight", {"V", "K"}, DType::bf16)
      .output("logits", {"T", "V"})
      .output("value", {"T", "C"})
      .output("index", {"T", "C"}, DType::i32)
      .size("C")
      .size("L")
      .loops(R"(
        { [t, c, v, k] : 0 <= t < T and 0 <= c < C and 0 <= v < L and 0 <= k < K }
        y[t, c, v]   = sum(k, f32(x[t, k]) * f32(weight[c * L + v, k]))  {if=c * L + v < V}
        logits[t, c * L + v] = y[t, c, v]  {if=c * L + v < V}
        value[t, c]  = max(v, y[t, c, v], c * L + v < V)
        index[t, c]  = c * L + argmax(v, y[t, c, v], c * L + v < V)
      )")
      .tasks({"c", "t"})
      .body(
          {.target = "cuda",
           .file = "wide.cuh",
           .name = "wide_linear_argmax",
           .applies =
               [](const graph::BodyQuery& q) {
                 const int64_t rows = q.sizes.at("T"), group = q.sizes.at("L");
                 return rows > stream::kMaxRows && rows <= stream::kMaxWideRows && q.sizes.at("K") % 8 == 0 &&
                        q.sizes.at("V") % 2 == 0 && (group == 32 || group == 48 || group == 64) &&
                        are_halves(q, {"x", "weight"}) && all_are(q, {"logits", "value"}, DType::f32);
               },
           .exchanged = {"value", "index"},
           .blocked = {"x"},
           .area_bytes = [](const graph::BodyQuery& q) { return int64_t{stream::wide_bytes(q.sizes.at("L"), q.int8)}; },
           .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "c", .step = "L", .abreast = true}})
      .test({{"T", 1}, {"V", 64}, {"K", 64}, {"C", 4}, {"L", 16}})
      .test({{"T", 3}, {"V", 77}, {"K", 129}, {"C", 3}, {"L", 32}})
      .test({{"T", 17}, {"V", 86}, {"K", 1000}, {"C", 3}, {"L", 32}})
      .test({{"T", 64}, {"V", 190}, {"K", 544}, {"C", 4}, {"L", 48}})
      .test({{"T", 33}, {"V", 258}, {"K", 776}, {"C", 5}, {"L", 64}});
}

}  // namespace megalith::ops
