// Products that write more than their sums.
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/registry.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::Operator;
using graph::operator_;

namespace {

// Added to the residual, with a second, narrower copy: the residual stream stays in f32 where it is added to, and what is
// multiplied next travels in half the bytes.
Operator add_copy() {
  return operator_("linear_add_copy", "y = residual + x weight^T; copy = y")
      .input("x", {"T", "K"}, DType::bf16)
      .input("weight", {"N", "K"}, DType::bf16)
      .input("residual", {"T", "N"})
      .output("y", {"T", "N"})
      .output("copy", {"T", "N"}, DType::bf16)
      .composed(R"(
        product = linear(x, weight)
        y       = add(residual, product; h as n)
        copy    = copy(y; h as n)
      )",
                single())
      .tasks({{"n", 8}, {"t", 1}})
      .body(streaming({.target = "cuda",
                       .file = "mainloop/gemv.cuh",
                       .name = "gemv_linear_residual_copy",
                       .applies =
                           [](const graph::BodyQuery& q) {
                             return streams(q, "T", true) && q.sizes.at("N") % 2 == 0 &&
                                    are_halves(q, {"x", "weight", "copy"}) && all_are(q, {"residual", "y"}, DType::f32);
                           },
                       .exchanged = {"x", "residual", "y", "copy"},
                       .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "n", .splits = true}}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 38}, {"K", 136}});
}

// The head of a language model for many rows, which are normalised already: the logits, and the largest of each chunk of L
// columns with the lowest column that has it.
Operator argmax_of_outputs() {
  return operator_("linear_argmax", "logits = x weight^T, and the largest of each chunk")
      .input("x", {"T", "K"})
      .input("weight", {"V", "K"}, DType::bf16)
      .output("logits", {"T", "V"})
      .output("value", {"T", "C"})
      .output("index", {"T", "C"}, DType::i32)
      .size("C")
      .size("L")
      .composed(R"(
        sums         = linear(x, weight; n in C * L)
        logits       = copy(sums; h in C * L)
        value, index = argmax_partial(sums; r as t)
      )",
                single())
      .tasks({"c", "t"})
      .body(
          {.target = "cuda",
           .file = "mainloop/gemm_wgmma.cuh",
           .name = "gemm_linear_argmax",
           .applies =
               [](const graph::BodyQuery& q) {
                 const int64_t rows = q.sizes.at("T"), group = q.sizes.at("L");
                 return rows > stream::kMaxRows && rows <= stream::kTileRows && q.sizes.at("K") % 8 == 0 &&
                        q.sizes.at("V") % 2 == 0 && (group == 32 || group == 48 || group == 64) &&
                        are_halves(q, {"x", "weight"}) && all_are(q, {"logits", "value"}, DType::f32);
               },
           .exchanged = {"value", "index"},
           .blocked = {"x"},
           .area_bytes = [](const graph::BodyQuery& q) { return int64_t{stream::wide_bytes(q.sizes.at("L"), q.int8)}; },
           .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "c", .step = "L", .n_parallel = true}})
      .test({{"T", 1}, {"V", 64}, {"K", 64}, {"C", 4}, {"L", 16}})
      .test({{"T", 3}, {"V", 77}, {"K", 129}, {"C", 3}, {"L", 32}})
      .test({{"T", 17}, {"V", 86}, {"K", 1000}, {"C", 3}, {"L", 32}})
      .test({{"T", 64}, {"V", 190}, {"K", 544}, {"C", 4}, {"L", 48}})
      .test({{"T", 33}, {"V", 258}, {"K", 776}, {"C", 5}, {"L", 64}});
}

}  // namespace

std::vector<Operator> linear_outputs() { return {add_copy(), argmax_of_outputs()}; }

}  // namespace megalith::ops
