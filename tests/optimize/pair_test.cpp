// Two products and their gate as one node mean what the nodes meant, whatever the gate is; and are left alone where
// somebody else looks at what lies in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/graph/interpret.h"
#include "megalith/graph/text.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "support/gates.h"
#include "support/random_arrays.h"

namespace megalith::optimize {
namespace {

using graph::Graph;
using graph::TensorId;
using testing::gated_graph;
using testing::random_arrays;

struct Case {
  std::string product, paired;  // operators
  const char* target;
  int64_t rows;
};

class Pair : public ::testing::TestWithParam<std::tuple<std::string, Case>> {};
INSTANTIATE_TEST_SUITE_P(
    Gates, Pair,
    ::testing::Combine(::testing::ValuesIn(testing::gates()),
                       ::testing::Values(Case{"linear", "gate_up", "cpu", 3}, Case{"linear", "gate_up", "cuda", 1},
                                         Case{"linear", "gate_up", "cuda", 4}, Case{"linear", "gate_up", "cuda", 64},
                                         Case{"rmsnorm_linear", "rmsnorm_gate_up", "cpu", 1},
                                         Case{"rmsnorm_linear", "rmsnorm_gate_up", "cuda", 2},
                                         Case{"linear_rmsnorm_scale", "gate_up_rmsnorm_scale", "cuda", 8},
                                         Case{"linear_rmsnorm_scale", "gate_up_rmsnorm_scale", "cuda", 128},
                                         Case{"dequantize_linear", "dequantize_gate_up", "cpu", 2},
                                         Case{"rmsnorm_dequantize_linear", "rmsnorm_dequantize_gate_up", "cpu", 5})));

TEST_P(Pair, MeansWhatTheNodesMeant) {
  const auto& [gate, test] = GetParam();
  const Graph before = gated_graph(gate, test.product, test.rows, DType::bf16), after = optimize(before, test.target);
  ASSERT_EQ(after.nodes().size(), 1u) << print(after);
  const graph::Operator& op = *after.nodes()[0].op;
  EXPECT_EQ(op.name, test.paired + (gate == "capped" ? "_capped"
                                    : gate == "gelu" ? "_gelu_gelu_times"
                                                     : "_row_bias_row_bias_silu_mul"));
  EXPECT_EQ(op.epilogue->values, (std::vector<std::string>{"a", "b"}));
  loop::Arrays wanted = random_arrays(before, 5), found = wanted;
  graph::interpret(before, lower(before, "cpu"), wanted, 1);
  graph::interpret(after, lower(after, test.target), found, 1);
  const std::vector<double>&w = wanted.at("result").values, &f = found.at("result").values;
  for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(f[i], w[i], 1e-9 * (1 + std::abs(w[i]))) << i;
}

TEST(Pair, LeavesAloneWhatOthersRead) {
  for (const char* read : {"first", "open"}) {
    Graph g = gated_graph("gelu", "linear", 1, DType::bf16);
    for (const graph::Node& node : g.nodes())
      if (node.name == read) {
        g.add("copy", "look", {node.operands.back()}, {.outputs = {{"y", g.state("seen", DType::f32, {1, 64})}}});
        break;
      }
    const Graph after = optimize(g, "cuda");
    for (const graph::Node& node : after.nodes())
      EXPECT_THAT(node.op->name, ::testing::Not(::testing::HasSubstr("gate_up")));
  }
}

TEST(Pair, LeavesAloneTheNodeThatLetsTheNextIterationBegin) {
  for (const char* last : {"first", "gated"}) {
    Graph g = gated_graph("gelu", "linear", 1, DType::bf16);
    g.set_gate(last, g.state("stop", DType::i32, {1}));
    const Graph after = optimize(g, "cuda");
    EXPECT_EQ(after.nodes()[static_cast<size_t>(*after.gate_node())].name, last);
    EXPECT_THAT(print(after), ::testing::Not(::testing::HasSubstr("gate_up")));
  }
}

TEST(Pair, LeavesAloneProductsOfDifferentRows) {
  Graph g(testing::registry_with_gates());
  std::vector<TensorId> products;
  for (const std::string name : {"first", "second"})
    products.push_back(
        g.apply("linear", name,
                {g.state(name + ".x", DType::bf16, {1, 96}), g.constant(name + ".weight", DType::bf16, {64, 96})}));
  g.add("times", "gated", products, {.outputs = {{"z", g.state("result", DType::bf16, {1, 64})}}});
  const Graph after = optimize(g, "cuda");
  EXPECT_EQ(after.nodes().size(), 3u);
}

}  // namespace
}  // namespace megalith::optimize
