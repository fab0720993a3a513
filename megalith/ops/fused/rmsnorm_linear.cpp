// Products of normalised rows: every task works out the norm of its rows again, which costs less than waiting for another's.
#include "megalith/ops/packed.h"
#include "megalith/ops/registry.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::Operator;
using graph::operator_;

namespace {

Operator linear_of_normed() {
  return operator_("rmsnorm_linear", "y = rmsnorm(x) weight^T")
      .input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("weight", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .composed(R"(
        normed = rmsnorm(x, norm)
        y      = linear(normed, weight)
      )",
                single())
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("rmsnorm_gemv", {"weight"}))
      .body(streaming({.target = "cuda",
                       .file = "mainloop/gemv.cuh",
                       .name = "gemv_rmsnorm_linear",
                       .applies =
                           [](const graph::BodyQuery& q) {
                             return streams(q) && q.sizes.at("N") % 2 == 0 && are_halves(q, {"x", "norm", "weight"}) &&
                                    dtype_is_half(q.dtypes.at("y"));
                           },
                       .exchanged = {"x", "y"},
                       .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "n"},
                       .has_epilogue = true,
                       .prefetch = "prefetch_norm"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}});
}

// The head of a language model with the search for the likeliest token begun: the logits, and the largest of each chunk of
// L columns with the lowest column that has it.
Operator argmax_of_normed() {
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
      .composed(R"(
        normed       = rmsnorm(x, norm; t as r)
        sums         = linear(normed, weight; t as r, n in C * L)
        logits       = copy(sums; t as r, h in C * L)
        value, index = argmax_partial(sums)
      )",
                single())
      .tasks({"c", "r"})
      .body(streaming(
          {.target = "cuda",
           .file = "mainloop/gemv.cuh",
           .name = "gemv_rmsnorm_linear_argmax",
           .applies =
               [](const graph::BodyQuery& q) {
                 return streams(q, "R") && q.sizes.at("L") == 128 && are_halves(q, {"x", "norm", "weight"}) &&
                        all_are(q, {"logits", "value"}, DType::f32);
               },
           .exchanged = {"x", "value", "index"},
           .streamed = graph::StreamedWeights{.operands = {"weight"}, .axis = "c", .step = "L", .activations = "R"},
           .prefetch = "prefetch_norm"}))
      .test({{"R", 1}, {"V", 64}, {"K", 64}, {"C", 4}, {"L", 16}})
      .test({{"R", 3}, {"V", 77}, {"K", 136}, {"C", 5}, {"L", 16}})
      .test({{"R", 2}, {"V", 300}, {"K", 64}, {"C", 3}, {"L", 128}});
}

}  // namespace

std::vector<Operator> rmsnorm_linear() { return {linear_of_normed(), argmax_of_normed()}; }

}  // namespace megalith::ops
