// What reads weights of whole numbers with scales, which a CPU packs and multiplies as they are.
#include "megalith/ops/packed.h"
#include "megalith/ops/registry.h"

namespace megalith::ops {

using graph::Operator;
using graph::operator_;

namespace {

Operator dequantize_linear() {
  return operator_("dequantize_linear", "y = x (weight * scale)^T")
      .input("x", {"T", "K"})
      .input("weight", {"N", "K"}, DType::i8)
      .input("scale", {"N", "G"}, DType::bf16)
      .output("y", {"T", "N"})
      .size("L")
      .composed(R"(
        matrix = dequantize(weight, scale; t as n)
        y      = linear(x, matrix)
      )",
                single())
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("gemv_int8", {"weight", "scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}})
      .test({{"T", 17}, {"N", 16}, {"K", 1000}, {"G", 8}, {"L", 128}});
}

Operator dequantize_rmsnorm_linear() {
  return operator_("rmsnorm_dequantize_linear", "y = rmsnorm(x) (weight * scale)^T")
      .input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("weight", {"N", "K"}, DType::i8)
      .input("scale", {"N", "G"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .size("L")
      .composed(R"(
        normed = rmsnorm(x, norm)
        matrix = dequantize(weight, scale; t as n)
        y      = linear(normed, matrix)
      )",
                single())
      .tasks({{"n", 16}, {"t", 1}})
      .body(panel_body("rmsnorm_gemv_int8", {"weight", "scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

Operator dequantize_embedding() {
  return operator_("dequantize_embedding", "y[t] = weight[ids[t]] * scale[ids[t]]")
      .index("ids", {"T"}, "V")
      .input("weight", {"V", "H"}, DType::i8)
      .input("scale", {"V", "G"}, DType::bf16)
      .output("y", {"T", "H"})
      .size("L")
      .composed(R"(
        table = dequantize(weight, scale; t as v)
        y     = embedding(ids, table)
      )",
                single())
      .tasks({{"h", 16}, {"t", 1}})
      .test({{"T", 1}, {"V", 7}, {"H", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 5}, {"V", 501}, {"H", 33}, {"G", 2}, {"L", 32}});
}

}  // namespace

std::vector<Operator> dequantize_fused() {
  return {dequantize_linear(), dequantize_rmsnorm_linear(), dequantize_embedding()};
}

}  // namespace megalith::ops
