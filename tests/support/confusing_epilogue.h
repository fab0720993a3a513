// An operator element by element whose operands and attributes are called as those that bodies look for
// (`requires { args.gate; }`): as an epilogue it must not be taken for what it stands behind.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/ops/registry.h"

namespace megalith::testing {

inline const std::vector<std::string>& confusing_names() {
  static const std::vector<std::string> names = {"gate", "norm", "up", "squares", "residual", "weight"};
  return names;
}

inline std::shared_ptr<const graph::Registry> registry_with_confusing_epilogue() {
  auto result = std::make_shared<graph::Registry>(*ops::builtin());
  graph::operator_ op("confuse", "gate x + norm up - squares residual weight[last] / eps");
  op.input("x", {"T", "N"});
  for (const std::string& name : confusing_names()) op.input(name, {name == "weight" ? "S" : "N"});
  op.output("y", {"T", "N"})
      .attribute("eps", 3)
      .loops(R"({ [t, n] : 0 <= t < T and 0 <= n < N }
                y[t, n] = gate[n] * f32(x[t, n]) + norm[n] * up[n] - squares[n] * residual[n] * weight[S - 1] / eps)")
      .tasks({"n"});
  result->add(op);
  return result;
}

/// Node "second" behind `y` [rows, columns], into the state "result" of `dtype`.
inline void add_confusing(graph::Graph& g, graph::TensorId y, DType dtype, int64_t rows, int64_t columns) {
  std::vector<graph::TensorId> inputs = {y};
  for (const std::string& name : confusing_names())
    inputs.push_back(g.constant("own." + name, DType::f32, {name == "weight" ? 5 : columns}));
  g.add("confuse", "second", inputs,
        {.attributes = {{"eps", 2}}, .outputs = {{"y", g.state("result", dtype, {rows, columns})}}});
}

}  // namespace megalith::testing
