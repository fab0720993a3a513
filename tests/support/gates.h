// Gates that nobody wrote an operator of two products for, behind two products.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/ops/registry.h"

namespace megalith::testing {

/// In one operator with an attribute, its operands the other way round; in three; and of products that have a bias.
inline const std::vector<std::string>& gates() {
  static const std::vector<std::string> all = {"capped", "gelu", "biased"};
  return all;
}

inline std::shared_ptr<const graph::Registry> registry_with_gates() {
  auto result = std::make_shared<graph::Registry>(*ops::builtin());
  result->add(graph::operator_("capped", "y = up cap tanh(gate / cap)")
                  .input("up", {"R", "I"})
                  .input("gate", {"R", "I"})
                  .output("y", {"R", "I"})
                  .attribute("cap", 30)
                  .loops(R"({ [r, i] : 0 <= r < R and 0 <= i < I }
                            y[r, i] = f32(up[r, i]) * cap * tanh(f32(gate[r, i]) / cap))")
                  .tasks({"i"}));
  result->add(graph::operator_("gelu", "y = gelu(x), with a sigmoid (https://arxiv.org/abs/1606.08415)")
                  .input("x", {"T", "N"})
                  .output("y", {"T", "N"})
                  .loops(R"({ [t, n] : 0 <= t < T and 0 <= n < N }
                            share[t, n] = 1 / (1 + exp(-1.702 * f32(x[t, n])))
                            y[t, n] = f32(x[t, n]) * share[t, n])")
                  .tasks({"n"}));
  result->add(graph::operator_("times", "z = x y")
                  .input("x", {"T", "N"})
                  .input("y", {"T", "N"})
                  .output("z", {"T", "N"})
                  .loops(R"({ [t, n] : 0 <= t < T and 0 <= n < N }
                            z[t, n] = f32(x[t, n]) * f32(y[t, n]))")
                  .tasks({"n"}));
  return result;
}

/// `product` is linear, rmsnorm_linear, linear_rmsnorm_scale, or one of a quantised matrix; the result is of `dtype`.
inline graph::Graph gated_graph(const std::string& gate, const std::string& product, int64_t rows, DType dtype,
                                int64_t columns = 96, int64_t outputs = 64) {
  using graph::TensorId;
  graph::Graph g(registry_with_gates());
  std::vector<TensorId> shared = {g.state("x", DType::bf16, {rows, columns})};
  if (product.starts_with("rmsnorm")) shared.push_back(g.constant("norm", DType::bf16, {columns}));
  if (product == "linear_rmsnorm_scale") shared.push_back(g.state("squares", DType::f32, {rows, 3}));
  const auto multiply = [&](const std::string& name) {
    const bool is_quantised = product.find("dequantize") != std::string::npos;
    std::vector<TensorId> inputs = shared;
    inputs.push_back(g.constant(name + ".weight", is_quantised ? DType::i8 : DType::bf16, {outputs, columns}));
    graph::NodeOptions options;
    if (is_quantised) {
      inputs.push_back(g.constant(name + ".scale", DType::bf16, {outputs, columns / 32}));
      options.sizes["L"] = 32;
    }
    return g.apply(product, name, inputs, options);
  };
  const TensorId first = multiply("first"), second = multiply("second"),
                 result = g.state("result", dtype, {rows, outputs});
  if (gate == "biased") {
    std::vector<TensorId> sums;
    for (const auto& [name, sum] : {std::pair("first", first), {"second", second}})
      sums.push_back(g.apply("row_bias", name + std::string("_bias"),
                             {sum, g.constant(name + std::string(".bias"), DType::bf16, {outputs})}));
    g.add("silu_mul", "gated", sums, {.outputs = {{"y", result}}});
  } else if (gate == "capped") {
    g.add("capped", "gated", {first, second}, {.attributes = {{"cap", 2.5}}, .outputs = {{"y", result}}});
  } else {
    const TensorId opened = g.apply("gelu", "open", {first});
    g.add("times", "gated", {second, g.apply("gelu", "twice", {opened})}, {.outputs = {{"z", result}}});
  }
  return g;
}

}  // namespace megalith::testing
