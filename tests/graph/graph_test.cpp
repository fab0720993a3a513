// The graph API: what it solves, what it shares, and what it says when things do not fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "megalith/base/error.h"
#include "megalith/graph/graph.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/text.h"

namespace megalith::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Registry> registry() {
  auto result = std::make_shared<Registry>();
  result->add(operator_("linear", "y = x weight^T")
                  .input("x", {"T", "K"})
                  .input("weight", {"N", "K"}, DType::bf16)
                  .output("y", {"T", "N"})
                  .loops(R"({ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
                            y[t, n] = sum(k, x[t, k] * weight[n, k]))")
                  .tasks({"n", "t"}));
  result->add(operator_("split", "heads of rows")
                  .input("x", {"T", "A * D * 2"})
                  .output("y", {"T", "A", "D"})
                  .size("D")
                  .loops(R"({ [t, a, d] : 0 <= t < T and 0 <= a < A and 0 <= d < D }
                            y[t, a, d] = x[t, a * D * 2 + d])"));
  result->add(operator_("count_up", "adds one, in place")
                  .inout("x", {"N"}, DType::i32)
                  .output("stop", {"1"}, DType::i32)
                  .loops(R"({ [n] : 0 <= n < N }
                            x[n] = x[n] + 1
                            stop[0] = if(x[0] >= 3, 1, 0))"));
  return result;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) { return error.what(); }
  return "no error";
}

TEST(Graph, SolvesSizesFromShapes) {
  Graph g(registry());
  const TensorId x = g.activation("x", DType::f32, {5, 48});
  const TensorId y = g.apply("split", "heads", {x}, {.sizes = {{"D", 8}}});
  EXPECT_EQ(g.nodes()[0].sizes.at("A"), 3);
  EXPECT_EQ(g.tensor(y).shape, (std::vector<Dim>{5, 3, 8}));
  EXPECT_EQ(g.tensor(y).name, "heads");
}

TEST(Graph, ADynamicSizeGoesThrough) {
  Graph g(registry());
  g.dynamic_size("rows", g.state("counts", DType::i32, {1}), 0);
  const TensorId x = g.activation("x", DType::f32, {Dim(64, "rows"), 48});
  const TensorId y = g.apply("linear", "y", {x, g.constant("w", DType::bf16, {7, 48})});
  EXPECT_EQ(g.tensor(y).shape, (std::vector<Dim>{Dim(64, "rows"), 7}));
  EXPECT_EQ(g.nodes()[0].dynamic.at("T"), "rows");
}

TEST(Graph, SizesLastAnIterationIfTheGateAloneWritesThem) {
  // Rows are read before or behind the gate, and their number is counted by the gate's node or by another.
  const auto sizes_last = [](bool is_behind, bool others_write) {
    Graph g(registry());
    const TensorId counts = g.state("counts", DType::i32, {4}), stop = g.state("stop", DType::i32, {1}),
                   other = g.state("other", DType::i32, {4});
    g.dynamic_size("rows", counts, 1);
    const TensorId x = g.state("x", DType::f32, {Dim(8, "rows"), 3}), w = g.constant("w", DType::bf16, {7, 3});
    const auto read = [&] { g.apply("linear", "y", {x, w}); };
    if (!is_behind) read();
    if (others_write)
      g.add("count_up", "other_count", {counts}, {.outputs = {{"stop", g.state("s", DType::i32, {1})}}});
    g.add("count_up", "count", {others_write ? other : counts}, {.outputs = {{"stop", stop}}});
    EXPECT_FALSE(g.lasting_sizes()) << "without a gate nobody looks at them once an iteration";
    g.set_gate("count", stop);
    if (is_behind) read();
    return g.lasting_sizes() == counts;
  };
  EXPECT_TRUE(sizes_last(false, false));
  EXPECT_FALSE(sizes_last(true, false));
  EXPECT_FALSE(sizes_last(false, true));
}

TEST(Graph, SaysWhatDoesNotFit) {
  Graph g(registry());
  const TensorId x = g.activation("x", DType::f32, {1, 4096});
  const TensorId w = g.constant("w", DType::bf16, {6144, 4095});
  EXPECT_EQ(
      error_of([&] {
        g.apply("linear", "layer.3.qkv", {x, w});
      }),
      "[linear] dimension 1 of x is [1, 4096] should be K = 4095 (operand \"x\", node \"layer.3.qkv\"); beside it w "
      "is [6144, 4095]");
  EXPECT_EQ(error_of([&] { g.apply("linear", "a", {x}); }), "[linear] 1 inputs given, want 2: x, weight (node \"a\")");
  EXPECT_EQ(error_of([&] {
              g.apply("linear", "a", {x, g.activation("flat", DType::f32, {4096})});
            }),
            "[linear] flat is [4096] has 1 dimensions, want 2 [N, K] (operand \"weight\", node \"a\")");
  EXPECT_EQ(error_of([&] {
              g.apply("linear", "a", {x, g.activation("ids", DType::i32, {4, 4096})});
            }),
            "[linear] operand \"weight\" is ids of i32, want a float dtype (node \"a\")");
  EXPECT_EQ(error_of([&] { g.apply("split", "a", {x}); }),
            "[split] the size A follows from no operand's shape: give it in the node's options (node \"a\")");
  EXPECT_EQ(error_of([&] {
              g.apply("split", "a", {x}, {.sizes = {{"D", 100}}});
            }),
            "[split] dimension 1 of x is [1, 4096] should be A * D * 2, a multiple of 200 (node \"a\")");
  EXPECT_THAT(error_of([&] {
                g.apply("matmul", "a", {x, w});
              }),
              HasSubstr("there is no operator \"matmul\"; known are"));
  EXPECT_EQ(error_of([&] { g.apply("linear", "a", {x, w}, {.tile = {{"k", 8}}}); }).substr(0, 8), "[linear]");
  EXPECT_EQ(error_of([&] { g.activation("x", DType::f32, {1}); }), "two tensors are named \"x\"");
  EXPECT_EQ(error_of([&] { g.add("count_up", "a", {g.constant("c", DType::i32, {4})}); }),
            "[count_up] writes \"c\", which is a constant (node \"a\")");
  EXPECT_EQ(error_of([&] { g.activation("d", DType::f32, {Dim(8, "rows")}); }),
            "tensor \"d\" follows the dynamic size \"rows\", which the graph does not have");
  EXPECT_TRUE(g.nodes().empty()) << "a refused node leaves nothing behind";
}

TEST(Graph, TensorsHaveAsManyElementsAsCanBeCounted) {
  Graph graph(registry(), "large");
  const int64_t side = int64_t{1} << 24;
  EXPECT_EQ(graph.tensor(graph.state("most", DType::f32, {side, side})).num_elements(), side * side);
  try {
    graph.state("more", DType::f32, {side, side, side});
    FAIL() << "2^72 elements were taken";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "tensor \"more\" has more than 281474976710656 elements");
  }
}

TEST(Lower, LayersOfOneSignatureShareAKernel) {
  Graph g(registry());
  TensorId x = g.activation("x", DType::f32, {2, 16});
  for (int layer = 0; layer < 4; ++layer)
    x = g.apply("linear", fmt::format("layer.{}", layer),
                {x, g.constant(fmt::format("w.{}", layer), DType::bf16, {16, 16})});
  x = g.apply("linear", "head", {x, g.constant("w.head", DType::bf16, {33, 16})});
  const LoweredGraph lowered = lower(g, schedule_in_rows(g, "cpu"));
  EXPECT_EQ(lowered.kernel_of_node, (std::vector<int>{0, 0, 0, 0, 1}));
  EXPECT_EQ(lowered.kernel_of_node, kernel_of_node(g, schedule_in_rows(g, "cpu")));
  EXPECT_EQ(lowered.kernels[1].name, "linear_1");
  EXPECT_EQ(lowered.kernels[1].binding.sizes.at("N"), 33);
}

TEST(Graph, AStateThatNobodyWritesMayBecomeAConstant) {
  Graph g(registry());
  const TensorId w = g.state("w", DType::bf16, {16, 16}), y = g.state("y", DType::f32, {2, 16});
  const TensorId x = g.activation("x", DType::f32, {2, 16});
  g.add("linear", "out", {x, w}, {.outputs = {{"y", y}}});
  g.make_constant(w);
  g.make_constant(w);  // it is one already
  EXPECT_EQ(g.tensor(w).kind, TensorKind::constant);
  EXPECT_EQ(error_of([&] { g.make_constant(y); }), "[linear] writes \"y\", which is to be a constant (node \"out\")");
  EXPECT_THAT(error_of([&] { g.make_constant(x); }), HasSubstr("\"x\" is an activation"));
  EXPECT_THAT(error_of([&] {
                g.add("linear", "again", {x, w}, {.outputs = {{"y", w}}});
              }),
              HasSubstr("writes \"w\", which is a constant"));
}

TEST(Lower, AnEditedKernelReplacesItsOwn) {
  Graph g(registry());
  g.apply("linear", "y", {g.activation("x", DType::f32, {2, 16}), g.constant("w", DType::bf16, {16, 16})});
  const LoweredGraph lowered = lower(g, schedule_in_rows(g, "cpu"));
  std::string text = print(g, lowered);
  EXPECT_EQ(print(g, parse_loops(text, g, lower(g, schedule_in_rows(g, "cpu")))), text);
  const size_t at = text.find("sum(k, x[t, k]");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 6, "max(k");
  text.insert(at + 5, ",");
  const LoweredGraph edited = parse_loops(text, g, lower(g, schedule_in_rows(g, "cpu")));
  EXPECT_EQ(edited.kernels[0].kernel.instructions[0].value.reduce, loop::ReduceOp::max);
  EXPECT_THAT(error_of([&] {
                parse_loops("kernel other\n{ [i] : 0 <= i < 3 }\na[i] = 1\n", g, lower(g, schedule_in_rows(g, "cpu")));
              }),
              HasSubstr("there is no loop kernel \"other\" to replace"));
  EXPECT_THAT(error_of([&] { parse_loops("garbage\n", g, lower(g, schedule_in_rows(g, "cpu"))); }),
              HasSubstr("there is no loop kernel in the text, want at least one line that begins with \"kernel \""));
}

// What a graph is called stands in the listing of its loop kernels, which is read back.
TEST(Lower, ANameIsNoPartOfTheLoopKernels) {
  for (const std::string name : {"x\nkernel linear_0\n{ [i] : 0 <= i < 3 }\na[i] = 1", "x\rkernel y", "x\\", "# \n#"}) {
    Graph g(registry(), name);
    g.apply("linear", "y", {g.activation("x", DType::f32, {2, 16}), g.constant("w", DType::bf16, {16, 16})});
    const std::string text = print(g, lower(g, schedule_in_rows(g, "cpu")));
    EXPECT_EQ(text.substr(0, 2), "# ");
    EXPECT_EQ(text.find("a[i] = 1\n"), std::string::npos) << text;
    EXPECT_EQ(print(g, parse_loops(text, g, lower(g, schedule_in_rows(g, "cpu")))), text);
  }
}

// Plans are found by the listing: two graphs with the same one would get the same plan.
TEST(Graph, NamesDoNotMakeListingsEqual) {
  auto listing = [](const std::string& graph, const std::vector<std::string>& states) {
    Graph g(registry(), graph);
    for (const std::string& state : states) g.state(state, DType::f32, {2});
    return print(g);
  };
  EXPECT_NE(listing("x", {"a", "b"}), listing("x", {"a: f32[2]\nstate b"}));
  EXPECT_NE(listing("x\nstate a: f32[2]", {}), listing("x", {"a"}));
  EXPECT_NE(listing("x", {"a\nb"}), listing("x", {"a\\x0ab"}));
  EXPECT_NE(listing("x", {"a b"}), listing("x", {"a\\x20b"}));
  EXPECT_EQ(listing("Qwen3-8B", {"layer.3/q:k"}), "graph Qwen3-8B\nstate layer.3/q:k: f32[2]\n");
}

// They become names in loop kernels and in code.
TEST(Registry, TakesOperatorsWhoseNamesAreNames) {
  for (const char* name : {"f\rg", "f\n", "f g", "", "1f", "f;", "f\\", "\xc3\xa9"}) {
    auto refused = [&](const std::function<void(Operator&)>& edit) {
      Operator op = registry()->get("linear");
      op.name = "mine";
      edit(op);
      Registry own;
      EXPECT_THAT(error_of([&] { own.add(op); }), HasSubstr("want letters, digits and _")) << name;
    };
    refused([&](Operator& op) { op.name = name; });
    refused([&](Operator& op) { op.operands[0].name = name; });
    refused([&](Operator& op) { op.attributes.push_back({name, 1}); });
    refused([&](Operator& op) { op.extra_sizes.push_back(name); });
    refused([&](Operator& op) { op.axes[0].iname = name; });
  }
}

TEST(Graph, TakesOutSeveralNodesAndPutsOneIn) {
  Graph g(registry());
  const TensorId x = g.state("x", DType::f32, {8, 3}), w = g.constant("w", DType::bf16, {7, 3}),
                 counts = g.state("counts", DType::i32, {2}), stop = g.state("stop", DType::i32, {1});
  const auto names = [&] {
    std::vector<std::string> all;
    for (const Node& node : g.nodes()) all.push_back(node.name);
    return all;
  };
  for (const char* name : {"a", "b", "c", "d"}) g.apply("linear", name, {x, w});
  g.add("count_up", "count", {counts}, {.outputs = {{"stop", stop}}});
  g.apply("linear", "e", {x, w});
  g.set_gate("count", stop);
  g.erase(std::vector<std::string>{"d", "a", "e"});
  EXPECT_THAT(names(), ElementsAre("b", "c", "count"));
  EXPECT_EQ(g.gate_node(), 2);
  g.insert(1, "linear", "n", {x, w});
  EXPECT_THAT(names(), ElementsAre("b", "n", "c", "count"));
  EXPECT_EQ(g.gate_node(), 3);
  g.erase("b");
  EXPECT_THAT(names(), ElementsAre("n", "c", "count"));
  EXPECT_EQ(g.gate_node(), 2);
  EXPECT_THAT(error_of([&] { g.erase(std::vector<std::string>{"c", "b"}); }), HasSubstr("has no node \"b\""));
  EXPECT_THAT(names(), ElementsAre("n", "c", "count")) << "nothing was taken out";
}

TEST(Interpret, RunsUntilTheStopWordIsSet) {
  Graph g(registry());
  const TensorId x = g.state("x", DType::i32, {2}), stop = g.state("stop", DType::i32, {1});
  g.add("count_up", "count", {x}, {.outputs = {{"stop", stop}}});
  g.set_gate("count", stop);
  loop::Arrays arrays;
  arrays["x"] = loop::Array::zeros({2});
  arrays["stop"] = loop::Array::zeros({1});
  EXPECT_EQ(interpret(g, lower(g, schedule_in_rows(g, "cpu")), arrays, 100), 3);
  EXPECT_EQ(arrays["x"].values, (std::vector<double>{3, 3}));
}

}  // namespace
}  // namespace megalith::graph
