#include "megalith/ops/fused/gate_up.h"

#include <fmt/format.h>

#include "megalith/ops/packed.h"
#include "megalith/ops/registry.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::Operator;
using graph::operator_;
using graph::Registry;

namespace {

const Gate& swiglu() {
  static const Gate gate = {"silu_mul", "y = silu_mul(a, b; i as n)"};
  return gate;
}

// `rows`: what both matrices are multiplied with.
operator_ begin(const std::string& name, const Gate& gate, const std::string& rows) {
  return {gate.name == swiglu().name ? name : fmt::format("{}_{}", name, gate.name),
          fmt::format("y = {}({} gate^T, {} up^T)", gate.name, rows, rows)};
}

// Behind all inputs and sizes. `products`: the program of a and b.
operator_& end(operator_& op, const Gate& gate, const std::string& products, const Registry& of, int64_t columns) {
  std::vector<std::string> besides;
  for (const graph::Operand& operand : gate.operands) {
    op.input(operand.name, operand.shape, operand.dtype);
    besides.push_back(operand.name);
  }
  op.output("y", {"T", "N"});
  for (const loop::Attribute& attribute : gate.attributes) op.attribute(attribute.name, attribute.value);
  return op.epilogue_of({"a", "b"}, besides).composed(products + gate.program, of).tasks({{"n", columns}, {"t", 1}});
}

// With few tokens that travel as words, or lie in blocks where nothing is normalised here.
graph::TunedBody few_gate_up(const std::string& name) {
  return with_epilogue(streaming({.target = "cuda",
                                  .file = "mainloop/gemv.cuh",
                                  .name = name,
                                  .applies =
                                      [](const graph::BodyQuery& q) {
                                        return streams(q) && q.sizes.at("N") % 2 == 0 &&
                                               are_halves(q, {"x", "gate", "up", "y"}) &&
                                               is_if_there(q, "norm", q.dtypes.at("x"));
                                      },
                                  .exchanged = {"x", "y"},
                                  .streamed = graph::StreamedWeights{.operands = {"gate", "up"}, .axis = "n"}}));
}

Operator gate_up(const Gate& gate, const Registry& of) {
  operator_ op = begin("gate_up", gate, "x");
  op.input("x", {"T", "K"}).input("gate", {"N", "K"}, DType::bf16).input("up", {"N", "K"}, DType::bf16);
  graph::TunedBody few = few_gate_up("gemv_gate_up");
  few.blocked = {"x", "y"};
  return end(op, gate,
             R"(
               a = linear(x, gate)
               b = linear(x, up)
             )",
             of, 8)
      .body(panel_body("gate_up_gemv", {"gate", "up"}))
      .body(std::move(few))
      .body(with_epilogue(wide_body("gemm_gate_up", {.operands = {"gate", "up"}, .axis = "n"})))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 38}, {"K", 136}})
      .test({{"T", 8}, {"N", 70}, {"K", 544}})
      .test({{"T", 40}, {"N", 70}, {"K", 264}})
      .test({{"T", 256}, {"N", 70}, {"K", 96}});
}

Operator rmsnorm_gate_up(const Gate& gate, const Registry& of) {
  operator_ op = begin("rmsnorm_gate_up", gate, "rmsnorm(x)");
  op.input("x", {"T", "K"})
      .input("norm", {"K"}, DType::bf16)
      .input("gate", {"N", "K"}, DType::bf16)
      .input("up", {"N", "K"}, DType::bf16)
      .attribute("eps", 1e-6);
  graph::TunedBody few = few_gate_up("gemv_rmsnorm_gate_up");
  few.prefetch = "prefetch_norm";
  return end(op, gate,
             R"(
               normed = rmsnorm(x, norm)
               a      = linear(normed, gate)
               b      = linear(normed, up)
             )",
             of, 8)
      .body(panel_body("rmsnorm_gate_up_gemv", {"gate", "up"}))
      .body(std::move(few))
      .test({{"T", 1}, {"N", 64}, {"K", 64}})
      .test({{"T", 3}, {"N", 38}, {"K", 136}});
}

// Behind a norm that is deferred (deferred_rmsnorm.cpp).
Operator gate_up_scale(const Gate& gate, const Registry& of) {
  operator_ op = begin("gate_up_rmsnorm_scale", gate, "1 / rms * x");
  op.input("x", {"T", "K"})
      .input("squares", {"T", "C"})
      .exactly()
      .input("gate", {"N", "K"}, DType::bf16)
      .input("up", {"N", "K"}, DType::bf16)
      .attribute("eps", 1e-6);
  return end(op, gate,
             R"(
               gates = linear(x, gate)
               ups   = linear(x, up)
               a     = rmsnorm_scale(gates, squares)
               b     = rmsnorm_scale(ups, squares)
             )",
             of, 16)
      .body(with_epilogue(few_body("gemv_deferred_rmsnorm_gate_up", {.operands = {"gate", "up"}, .axis = "n"})))
      .body(with_epilogue(wide_body("gemm_deferred_rmsnorm_gate_up", {.operands = {"gate", "up"}, .axis = "n"})))
      .test({{"T", 1}, {"N", 64}, {"C", 2}, {"K", 64}})
      .test({{"T", 4}, {"N", 38}, {"C", 4}, {"K", 128}})
      .test({{"T", 7}, {"N", 70}, {"C", 9}, {"K", 544}})
      .test({{"T", 40}, {"N", 70}, {"C", 9}, {"K", 264}})
      .test({{"T", 160}, {"N", 70}, {"C", 9}, {"K", 136}})
      .test({{"T", 288}, {"N", 34}, {"C", 9}, {"K", 72}});
}

// Of whole numbers with scales, which a CPU packs and multiplies as they are.
operator_& add_quantised(operator_& op) {
  return op.input("gate", {"N", "K"}, DType::i8)
      .input("gate_scale", {"N", "G"}, DType::bf16)
      .input("up", {"N", "K"}, DType::i8)
      .input("up_scale", {"N", "G"}, DType::bf16)
      .size("L");
}

Operator dequantize_gate_up(const Gate& gate, const Registry& of) {
  operator_ op = begin("dequantize_gate_up", gate, "x");
  add_quantised(op.input("x", {"T", "K"}));
  return end(op, gate,
             R"(
               gate_matrix = dequantize(gate, gate_scale; t as n)
               up_matrix   = dequantize(up, up_scale; t as n)
               a           = linear(x, gate_matrix)
               b           = linear(x, up_matrix)
             )",
             of, 16)
      .body(panel_body("gate_up_gemv_int8", {"gate", "gate_scale", "up", "up_scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

Operator rmsnorm_dequantize_gate_up(const Gate& gate, const Registry& of) {
  operator_ op = begin("rmsnorm_dequantize_gate_up", gate, "rmsnorm(x)");
  add_quantised(op.input("x", {"T", "K"}).input("norm", {"K"}, DType::bf16).attribute("eps", 1e-6));
  return end(op, gate,
             R"(
               normed      = rmsnorm(x, norm)
               gate_matrix = dequantize(gate, gate_scale; t as n)
               up_matrix   = dequantize(up, up_scale; t as n)
               a           = linear(normed, gate_matrix)
               b           = linear(normed, up_matrix)
             )",
             of, 16)
      .body(panel_body("rmsnorm_gate_up_gemv_int8", {"gate", "gate_scale", "up", "up_scale"}))
      .test({{"T", 1}, {"N", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

}  // namespace

const std::vector<PairedProduct>& paired_products() {
  static const std::vector<PairedProduct> all = {
      {"linear", {"x"}, {"weight"}, gate_up},
      {"rmsnorm_linear", {"x", "norm"}, {"weight"}, rmsnorm_gate_up},
      {"linear_rmsnorm_scale", {"x", "squares"}, {"weight"}, gate_up_scale},
      {"dequantize_linear", {"x"}, {"weight", "scale"}, dequantize_gate_up},
      {"rmsnorm_dequantize_linear", {"x", "norm"}, {"weight", "scale"}, rmsnorm_dequantize_gate_up},
  };
  return all;
}

// With the gate that comes with Megalith.
std::vector<Operator> gate_up() {
  std::vector<Operator> operators;
  for (const PairedProduct& pair : paired_products()) operators.push_back(pair.with(swiglu(), single()));
  return operators;
}

}  // namespace megalith::ops
