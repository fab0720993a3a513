// A graph of all operators on the sizes that they declare, in every float dtype, with full and with partly filled
// dynamic sizes: one node per case, so that one compilation serves them all; and random values for it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "megalith/ops/registry.h"
#include "support/graph_run.h"

namespace megalith::testing {

/// What the dynamic size is while the cases run.
inline constexpr int64_t kDynamicRows = 2;

struct Case {
  std::string node;
  const graph::Operator* op;
  DType dtype;                                 // of operands that have none of their own
  std::map<std::string, std::string> tensors;  // operand -> tensor name
  std::map<std::string, int64_t> sizes;
};

inline int64_t product_of(const std::string& text, const std::map<std::string, int64_t>& sizes) {
  graph::Operator op;
  op.name = "index";
  const graph::Operand operand{"x", loop::Role::input, {text}, DType::i32};
  return graph::operand_shape(op, operand, {sizes, {}})[0].size;
}

// Weights that some body takes from a stream or from panels: constants, since those are laid out before anything runs.
inline bool is_laid_out(const graph::Operator& op, const std::string& operand) {
  auto has = [&](const auto& weights) {
    return weights && std::ranges::find(weights->operands, operand) != weights->operands.end();
  };
  return std::ranges::any_of(op.bodies,
                             [&](const graph::TunedBody& body) { return has(body.streamed) || has(body.packed); });
}

// Adds one node per declared test of `op`; its operands are states, so that they can be set and read.
inline void add_cases(graph::Graph& graph, const graph::Operator& op, DType dtype, bool dynamic,
                      std::vector<Case>& cases) {
  for (size_t t = 0; t < op.tests.size(); ++t) {
    graph::SolvedSizes solved{op.tests[t], {}};
    if (dynamic && op.tests[t].contains("T") && op.tests[t].at("T") > 1) solved.dynamic["T"] = "rows";
    if (dynamic && solved.dynamic.empty()) continue;
    Case test{fmt::format("{}.{}.{}{}", op.name, t, dtype_name(dtype), dynamic ? ".dynamic" : ""),
              &op,
              dtype,
              {},
              op.tests[t]};
    std::vector<graph::TensorId> inputs;
    graph::NodeOptions options;
    for (const std::string& size : op.extra_sizes) options.sizes[size] = op.tests[t].at(size);
    for (const graph::Operand& operand : op.operands) {
      std::vector<graph::Dim> shape = graph::operand_shape(op, operand, solved);
      // The largest T is what the test says; with a dynamic one the graph's `rows` tells how many there are.
      const DType type = operand.exact_dtype || !dtype_is_float(operand.dtype) ? operand.dtype : dtype;
      test.tensors[operand.name] = test.node + "." + operand.name;
      const std::string& name = test.tensors[operand.name];
      const graph::TensorId id =
          is_laid_out(op, operand.name) ? graph.constant(name, type, shape) : graph.state(name, type, shape);
      if (operand.role == loop::Role::output)
        options.outputs[operand.name] = id;
      else
        inputs.push_back(id);
    }
    graph.add(op.name, test.node, inputs, options);
    cases.push_back(std::move(test));
  }
}

struct OperatorCases {
  graph::Graph graph{ops::builtin(), "operators"};
  std::vector<Case> cases;
};

/// The operators that have cases: all but those that no loop kernel can say (batch_operators_test.cpp).
inline std::vector<std::string> operators_with_cases() {
  std::vector<std::string> names = ops::builtin()->names();
  std::erase_if(names, [](const std::string& name) { return static_cast<bool>(ops::builtin()->get(name).reference); });
  return names;
}

inline OperatorCases operator_cases(const std::vector<std::string>& names = operators_with_cases()) {
  OperatorCases result;
  graph::Graph& graph = result.graph;
  std::vector<Case>& cases = result.cases;
  graph.dynamic_size("rows", graph.state("counts", DType::i32, {1}), 0);
  for (const std::string& name : names) {
    const graph::Operator& op = ops::builtin()->get(name);
    EXPECT_GE(op.tests.size(), 1u) << name << " declares no sizes to be tested on";
    add_cases(graph, op, DType::f32, false, cases);
    add_cases(graph, op, DType::bf16, false, cases);
    add_cases(graph, op, DType::f16, false, cases);
    add_cases(graph, op, DType::f32, true, cases);
  }
  return result;
}

/// Makes normal values such as a model has there, where others would measure what no body can help: a product of two
/// large sums multiplies the error of the one with the other, and a total near 0 divides by it.
inline void make_likely(std::vector<double>& values, const graph::Operator& op, const graph::Operand& operand,
                        const std::map<std::string, int64_t>& sizes) {
  const bool is_scale = operand.name.ends_with("scale");
  const double of_sums =  // which are of about 1 then
      is_laid_out(op, operand.name) && sizes.contains("K") ? 1 / std::sqrt(static_cast<double>(sizes.at("K"))) : 1;
  for (size_t i = 0; i < values.size(); ++i) {
    double& value = values[i];
    // of exponentials, the largest of which is 1; beside the largest score
    if (operand.name == "total" || (operand.name == "softmax" && i % 2 == 1)) value = 1 + std::abs(value);
    if (is_scale) value = (0.5 + std::abs(value)) * 0.01;  // of whole numbers up to 100
    if (dtype_is_float(operand.dtype)) value *= of_sums;
  }
}

inline void fill_operator_cases(const OperatorCases& all, GraphMemory& memory) {
  std::mt19937_64 random(7);
  for (const Case& test : all.cases)
    for (const graph::Operand& operand : test.op->operands) {
      const graph::Node& node = *std::find_if(all.graph.nodes().begin(), all.graph.nodes().end(),
                                              [&](const graph::Node& n) { return n.name == test.node; });
      const graph::Tensor& tensor = all.graph.tensor(all.graph.find(test.tensors.at(operand.name)));
      const int64_t limit = operand.index_into.empty() ? 100 : product_of(operand.index_into, node.sizes);
      std::vector<double> values = random_values(tensor.num_elements(), tensor.dtype, limit, random);
      if (tensor.dtype == DType::i8)
        for (size_t i = 0; i < values.size(); i += 2) values[i] = -values[i];
      make_likely(values, *test.op, operand, node.sizes);
      memory.set(tensor.name, values);
    }
  memory.set("counts", {static_cast<double>(kDynamicRows)});
}

/// Roundings of f32 that a result may be off by, as error_in_roundings() counts them, on a CPU. Over a dozen seeds the
/// largest were 10.5 in general. More are left to a product of two sums, which has the error of each times the other
/// (13), and to a sum of a thousand products in one order, whose error grows with the root of their number (15 for the
/// values that the test has).
inline double cpu_slack(const Case& test) {
  const auto columns = test.sizes.find("K");
  const bool long_sum = columns != test.sizes.end() && columns->second > 512;
  return long_sum || test.op->name.starts_with("rmsnorm_gate_up") ? 16 : 12;
}
/// On a GPU; the largest found there, over a few seeds, was 14.
inline double gpu_slack(const Case&) { return 16; }

/// Differences that rounding does not explain, as text; "" if there are none. `roundings`: to the dtype of the result,
/// which a body may do more than one of. `target`: whose bodies they were that say when they round more than their loop
/// kernel does.
inline std::string wrong_operators(const OperatorCases& all, const GraphMemory& memory, const loop::Arrays& expected,
                                   double (*slack)(const Case&), double roundings = 1, const std::string& target = "") {
  std::string wrong;
  for (const Case& test : all.cases)
    for (const graph::Operand& operand : test.op->operands) {
      const bool rounds = std::ranges::any_of(test.op->bodies, [&](const graph::TunedBody& body) {
        return body.target == target && body.rounds_operands && test.dtype == DType::bf16;
      });
      if (operand.role == loop::Role::input) continue;
      const std::string& name = test.tensors.at(operand.name);
      const graph::Tensor& tensor = all.graph.tensor(all.graph.find(name));
      loop::Array found = memory.array(name), wanted = expected.at(name);
      if (!tensor.shape.empty() && !tensor.shape[0].dynamic.empty()) {
        // Rows that are not there today must be as they were, and tell nothing of how large the others are.
        const auto there = static_cast<std::ptrdiff_t>(found.values.size()) / tensor.shape[0].size * kDynamicRows;
        if (!std::equal(found.values.begin() + there, found.values.end(), wanted.values.begin() + there))
          wrong += fmt::format("{} is written beyond its rows\n", name);
        found.values.resize(static_cast<size_t>(there));
        wanted.values.resize(static_cast<size_t>(there));
      }
      const double error =
          error_in_roundings(found, wanted, rounds ? DType::bf16 : tensor.dtype, slack(test), rounds ? 1 : roundings);
      if (error > 1.0) wrong += fmt::format("{} is off by {} times what rounding explains\n", name, error);
    }
  return wrong;
}

}  // namespace megalith::testing
