// A norm that is deferred (optimize/defer_norm.cpp): whoever writes rows writes what it needs of them, and whoever
// multiplies those scales the sums, which a row's have in common. Nobody waits for a whole row to be normalised.
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/registry.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::Operator;
using graph::operator_;

namespace {

// ---- who writes the rows ------------------------------------------------------------------------------------------------

// What all of them write.
operator_& add_outputs(operator_& op) {
  return op.output("y", {"T", "C * L"})
      .exactly()
      .output("copy", {"T", "C * L"}, DType::bf16)
      .output("squares", {"T", "C"})
      .exactly()
      .attribute("factor", 1)
      .size("L");
}

Operator linear_add_parts() {
  operator_ op("linear_add_rmsnorm_parts", "y = residual + x weight^T; copy = y * norm; squares = sums of y^2");
  op.input("x", {"T", "K"})
      .input("weight", {"C * L", "K"}, DType::bf16)
      .input("residual", {"T", "C * L"})
      .exactly()
      .input("norm", {"C * L"}, DType::bf16);
  return add_outputs(op)
      .composed(R"(
        product       = linear(x, weight)
        y             = add(residual, product)
        copy, squares = rmsnorm_parts(y, norm)
      )",
                single())
      .tasks({"c", "t"})
      .body(few_body("gemv_linear_residual_rmsnorm_parts",
                     {.operands = {"weight"}, .axis = "c", .step = "L", .splits = true}))
      .body(wide_body("gemm_linear_residual_rmsnorm_parts",
                      {.operands = {"weight"}, .axis = "c", .step = "L", .may_have_partners = true}))
      .test({{"T", 1}, {"C", 2}, {"L", 32}, {"K", 64}})
      .test({{"T", 3}, {"C", 5}, {"L", 7}, {"K", 129}})
      .test({{"T", 4}, {"C", 5}, {"L", 8}, {"K", 192}})
      .test({{"T", 8}, {"C", 5}, {"L", 16}, {"K", 544}})
      .test({{"T", 33}, {"C", 3}, {"L", 32}, {"K", 776}})
      .test({{"T", 64}, {"C", 5}, {"L", 32}, {"K", 544}})
      .test({{"T", 200}, {"C", 3}, {"L", 32}, {"K", 160}})
      .test({{"T", 304}, {"C", 5}, {"L", 32}, {"K", 96}});
}

// What is left to do behind linear_slices, so that both are linear_add_rmsnorm_parts.
Operator sum_slices_parts() {
  operator_ op("sum_slices_rmsnorm_parts", "y = residual + sum of the slices; copy = y * norm; squares = sums of y^2");
  op.input("part", {"S", "T", "C * L"})
      .exactly()
      .input("residual", {"T", "C * L"})
      .exactly()
      .input("norm", {"C * L"}, DType::bf16);
  return add_outputs(op)
      .composed(R"(
        product       = sum_slices(part)
        y             = add(residual, product)
        copy, squares = rmsnorm_parts(y, norm)
      )",
                single())
      .tasks({"c", "t"})
      .body({.target = "cuda",
             .file = "rowwise/rmsnorm.cuh",
             .name = "sum_slices_rmsnorm_parts_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return q.sizes.at("L") == 32 && q.sizes.at("T") > stream::kMaxRows && q.sizes.at("S") <= 8 &&
                          all_are(q, {"part", "residual", "y"}, DType::f32) && dtype_is_half(q.dtypes.at("norm")) &&
                          dtype_is_half(q.dtypes.at("copy"));
                 },
             .blocked = {"copy"}})
      .test({{"S", 2}, {"T", 1}, {"C", 2}, {"L", 32}})
      .test({{"S", 3}, {"T", 3}, {"C", 5}, {"L", 7}})
      .test({{"S", 4}, {"T", 33}, {"C", 3}, {"L", 32}})
      .test({{"S", 8}, {"T", 128}, {"C", 2}, {"L", 32}});
}

Operator embedding_parts() {
  operator_ op("embedding_rmsnorm_parts", "y[t] = weight[ids[t]]; copy = y * norm; squares = sums of y^2");
  op.index("ids", {"T"}, "V").input("weight", {"V", "C * L"}, DType::bf16).input("norm", {"C * L"}, DType::bf16);
  return add_outputs(op)
      .composed(R"(
        y             = embedding(ids, weight)
        copy, squares = rmsnorm_parts(y, norm)
      )",
                single())
      .tasks({"t"})
      .body({.target = "cuda",
             .file = "rowwise/rmsnorm.cuh",
             .name = "embedding_rmsnorm_parts_rows",
             .applies =
                 [](const graph::BodyQuery& q) {
                   const int64_t columns = q.sizes.at("L");
                   return are_halves(q, {"weight", "norm"}) && dtype_is_half(q.dtypes.at("copy")) &&
                          (columns == 8 || columns == 16 || columns == 32) && q.sizes.at("C") * columns <= 16384;
                 },
             .exchanged = {"y"},
             .blocked = {"copy"}})
      .test({{"T", 1}, {"V", 7}, {"C", 2}, {"L", 32}})
      .test({{"T", 5}, {"V", 501}, {"C", 37}, {"L", 32}})
      .test({{"T", 4}, {"V", 19}, {"C", 9}, {"L", 8}})
      .test({{"T", 8}, {"V", 19}, {"C", 9}, {"L", 16}})
      .test({{"T", 3}, {"V", 19}, {"C", 5}, {"L", 7}});
}

// ---- who multiplies them ------------------------------------------------------------------------------------------------

Operator linear_scale() {
  return operator_("linear_rmsnorm_scale", "y = x weight^T / rms, with the squares of a row summed in parts")
      .input("x", {"T", "K"})
      .input("squares", {"T", "C"})
      .exactly()
      .input("weight", {"N", "K"}, DType::bf16)
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6)
      .composed(R"(
        product = linear(x, weight)
        y       = rmsnorm_scale(product, squares)
      )",
                single())
      .tasks({{"n", 16}, {"t", 1}})
      .body(with_epilogue(few_body("gemv_deferred_rmsnorm_linear", {.operands = {"weight"}, .axis = "n"})))
      .body(with_epilogue(wide_body("gemm_deferred_rmsnorm_linear", {.operands = {"weight"}, .axis = "n"})))
      .test({{"T", 1}, {"N", 64}, {"C", 2}, {"K", 64}})
      .test({{"T", 3}, {"N", 37}, {"C", 5}, {"K", 129}})
      .test({{"T", 3}, {"N", 38}, {"C", 5}, {"K", 192}})
      .test({{"T", 8}, {"N", 70}, {"C", 17}, {"K", 544}})
      .test({{"T", 17}, {"N", 16}, {"C", 32}, {"K", 1000}})
      .test({{"T", 64}, {"N", 78}, {"C", 17}, {"K", 544}})
      .test({{"T", 192}, {"N", 102}, {"C", 5}, {"K", 160}})
      .test({{"T", 400}, {"N", 102}, {"C", 5}, {"K", 96}})
      .test({{"T", 9}, {"N", 6150}, {"C", 1}, {"K", 168}});
}

}  // namespace

std::vector<Operator> deferred_rmsnorm() {
  return {linear_add_parts(), sum_slices_parts(), embedding_parts(), linear_scale()};
}

}  // namespace megalith::ops
