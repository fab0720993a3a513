// An epilogue that was fused means what the two nodes meant, and is not fused where it would not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/text.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "support/random_arrays.h"

namespace megalith::optimize {
namespace {

using graph::Graph;
using graph::TensorId;
using ::testing::HasSubstr;
using testing::random_arrays;

// Element by element, with constants, an attribute, names that producers have too, and its axes in another order.
std::shared_ptr<const graph::Registry> registry() {
  auto result = std::make_shared<graph::Registry>(*ops::builtin());
  result->add(graph::operator_("squash", "weight * tanh(x / eps) + norm, per column; scale is of a row")
                  .input("weight", {"I"})
                  .input("x", {"R", "I"})
                  .input("scale", {"R"})
                  .output("out", {"R", "I"})
                  .attribute("eps", 3)
                  .loops(R"({ [r, i] : 0 <= r < R and 0 <= i < I }
                            out[r, i] = f32(scale[r]) * f32(weight[i]) * exp(0 - f32(x[r, i]) / eps))")
                  .tasks({"i"}));
  return result;
}

TensorId producer(Graph& g, const std::string& op, int64_t rows) {
  const auto x = g.state("x", DType::bf16, {rows, 96});
  const auto weight = g.constant("weight", DType::bf16, {64, 96});
  const graph::NodeOptions narrow = {.dtypes = {{"y", DType::bf16}}};
  if (op == "rmsnorm_linear") return g.apply(op, "first", {x, g.constant("norm", DType::bf16, {96}), weight}, narrow);
  if (op == "linear_rmsnorm_scale")
    return g.apply(op, "first", {x, g.state("squares", DType::f32, {rows, 3}), weight}, narrow);
  return g.apply(op, "first", {x, weight}, narrow);
}

void add_bias(Graph& g, TensorId y, int64_t rows) {
  g.add("row_bias", "second", {y, g.constant("bias", DType::bf16, {64})},
        {.outputs = {{"y", g.state("result", DType::bf16, {rows, 64})}}});
}

void add_squash(Graph& g, TensorId y, int64_t rows) {
  g.add("squash", "second", {g.constant("w", DType::f32, {64}), y, g.constant("s", DType::f32, {rows})},
        {.attributes = {{"eps", 2}}, .outputs = {{"out", g.state("result", DType::bf16, {rows, 64})}}});
}

using Consumer = void (*)(Graph&, TensorId, int64_t);

// Random values, of what is squared or scales no zeros.
// Elementwise as well; but a row of the table is found by data, a divisor is data, and a size is known when it runs.
std::shared_ptr<const graph::Registry> registry_of_checked() {
  auto result = std::make_shared<graph::Registry>(*registry());
  const auto add = [&](const char* name, const char* value) {
    result->add(graph::operator_(name, "y = f(x)")
                    .input("x", {"T", "N"})
                    .input("ids", {"T"}, DType::i32)
                    .input("table", {"V", "N"})
                    .output("y", {"T", "N"})
                    .loops(fmt::format("{{ [t, n] : 0 <= t < T and 0 <= n < N }}\ny[t, n] = {}", value))
                    .tasks({"n"}));
  };
  add("by_id", "f32(x[t, n]) + table[ids[t], n]");
  add("by_quotient", "f32(x[t, n]) + table[0, n] + n // ids[t]");
  add("by_size", "f32(x[t, n]) + table[0, n] + ids[t] + T");
  return result;
}

class FuseEpilogue : public ::testing::TestWithParam<std::tuple<std::string, int64_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Rows, FuseEpilogue,
                         ::testing::Values(std::tuple("rmsnorm_linear", 1, true), std::tuple("rmsnorm_linear", 2, true),
                                           std::tuple("linear_rmsnorm_scale", 4, true),
                                           std::tuple("linear_rmsnorm_scale", 16, true),
                                           std::tuple("linear_rmsnorm_scale", 128, true),
                                           std::tuple("linear", 64, true), std::tuple("linear", 2, true),
                                           std::tuple("linear", 8, true), std::tuple("linear", 192, true),
                                           std::tuple("linear", 2064, false)));  // no body takes it

TEST_P(FuseEpilogue, MeansWhatTheNodesMeant) {
  const auto& [op, rows, fits] = GetParam();
  for (const Consumer consumer : {add_bias, add_squash}) {
    Graph before(registry());
    consumer(before, producer(before, op, rows), rows);
    const Graph after = optimize(before, "cuda");
    ASSERT_EQ(after.nodes().size(), fits ? 1u : 2u) << print(after);
    // Of a CPU's bodies those that multiply take one; nobody wrote one for linear_rmsnorm_scale.
    EXPECT_EQ(optimize(before, "cpu").nodes().size(), op == "linear_rmsnorm_scale" ? 2u : 1u);
    if (!fits) continue;
    EXPECT_FALSE(after.has("first"));
    EXPECT_EQ(after.nodes()[0].name, "first");
    EXPECT_TRUE(after.nodes()[0].op->epilogue);
    const graph::Schedule schedule = make_schedule(after, "cuda");
    check_schedule(after, schedule);
    ASSERT_NE(schedule.body(0), nullptr);
    EXPECT_EQ(schedule.body(0)->name, make_schedule(before, "cuda").body(0)->name);

    // The interpreter rounds nothing but what a cast says: so the two are equal but for the order of products.
    loop::Arrays wanted = random_arrays(before, 3), found = wanted;
    graph::interpret(before, lower(before, "cuda"), wanted, 1);
    graph::interpret(after, lower(after, "cuda"), found, 1);
    const auto &want = wanted.at("result").values, &have = found.at("result").values;
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(have[i], want[i], 1e-9 * (1 + std::abs(want[i]))) << i;
  }
}

TEST(FuseEpilogueLimits, IsLeftWhereItWouldMeanSomethingElse) {
  const auto left = [](const std::function<void(Graph&, TensorId)>& consume) {
    Graph g(registry());
    consume(g, producer(g, "rmsnorm_linear", 1));
    g.tidy();
    const std::string before = print(g);
    return print(optimize(g, "cuda")) == before;
  };
  EXPECT_FALSE(left([](Graph& g, TensorId y) { add_bias(g, y, 1); }));
  EXPECT_TRUE(left([](Graph& g, TensorId y) {
    g.apply("row_bias", "second", {y, g.state("bias", DType::bf16, {64})});
  })) << "a bias that may change";
  EXPECT_TRUE(left([](Graph& g, TensorId y) {
    add_bias(g, y, 1);
    g.apply("copy", "third", {y});
  })) << "somebody else reads what is between";
  EXPECT_TRUE(left([](Graph& g, TensorId y) {
    g.apply("rmsnorm", "second", {y, g.constant("other", DType::bf16, {64})});
  })) << "not element by element";
  EXPECT_TRUE(left([](Graph& g, TensorId y) { g.apply("add", "second", {y, y}); })) << "no constant";
}

// A generated body checks what the data decide; an epilogue would not.
TEST(FuseEpilogueLimits, WhatIsCheckedWhenItRunsIsLeft) {
  const auto nodes_left = [](const char* op) {
    Graph g(registry_of_checked());
    const auto counts = g.state("counts", DType::i32, {1});
    g.dynamic_size("rows", counts, 0);
    const auto x = g.state("x", DType::f32, {graph::Dim(4, "rows"), 96});
    const auto y = g.apply("linear", "first", {x, g.constant("weight", DType::bf16, {64, 96})});
    g.apply(op, "second",
            {y, g.constant("ids", DType::i32, {graph::Dim(4, "rows")}), g.constant("table", DType::f32, {5, 64})});
    return optimize(g, "cpu").nodes().size();
  };
  for (const char* op : {"by_id", "by_quotient", "by_size"}) EXPECT_EQ(nodes_left(op), 2u) << op;
}

TEST(FuseEpilogueLimits, RulesAreSwitchedOffByName) {
  Graph g(registry());
  add_bias(g, producer(g, "rmsnorm_linear", 1), 1);
  g.tidy();
  {
    const test::EnvironmentVariable off("MEGALITH_DISABLE", "fuse_epilogue");
    EXPECT_EQ(print(optimize(g, "cuda")), print(g));
  }
  const test::EnvironmentVariable wrong("MEGALITH_DISABLE", "fuse_epilog");
  EXPECT_THAT(test::message_of<UserError>([&] { optimize(g, "cuda"); }),
              HasSubstr("MEGALITH_DISABLE names \"fuse_epilog\", and there is no such rule: want gather_first, "));
}

// All layers of a model share the derived operator, and so its kernel.
TEST(FuseEpilogueLimits, OneOperatorServesAllNodes) {
  Graph g(registry());
  TensorId x = g.activation("x", DType::bf16, {1, 64});
  for (int layer = 0; layer < 3; ++layer) {
    const auto at = [&](const char* name) { return fmt::format("{}.{}", layer, name); };
    x = g.apply("rmsnorm_linear", at("linear"),
                {x, g.constant(at("norm"), DType::bf16, {64}), g.constant(at("weight"), DType::bf16, {64, 64})},
                {.dtypes = {{"y", DType::bf16}}});
    x = g.apply("row_bias", at("bias_"), {x, g.constant(at("bias"), DType::bf16, {64})},
                {.dtypes = {{"y", DType::bf16}}});
  }
  const Graph after = optimize(g, "cuda");
  ASSERT_EQ(after.nodes().size(), 3u);
  EXPECT_EQ(after.nodes()[0].op, after.nodes()[2].op);
  EXPECT_EQ(lower(after, "cuda").kernels.size(), 1u);
  ASSERT_EQ(after.rewrites().size(), 3u);
  EXPECT_EQ(after.rewrites()[1].node, "1.linear");
  EXPECT_EQ(after.rewrites()[1].before, "rmsnorm_linear, row_bias");
  EXPECT_EQ(after.rewrites()[1].bytes_saved, 2 * 64 * 2);
}

}  // namespace
}  // namespace megalith::optimize
