// Rows are picked before they are worked on, as far back as each is made of its own row alone, and where that is worth it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/text.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "support/random_arrays.h"

namespace megalith::optimize {
namespace {

using graph::Graph;
using graph::Node;
using graph::TensorId;
using testing::random_arrays;

constexpr int64_t kWidth = 32, kInner = 48;

struct PickedRows {
  int64_t rows = 160, samples = 2;
  bool is_read = false;     // the MLP's sum, by one more node
  bool is_written = false;  // which rows to pick, between
  bool is_state = false;    // what is added to the MLP, and changes in between
};

// x + mlp(norm(x)), of which some rows are picked. What makes x looks at other rows, as attention does.
Graph picked_mlp(const PickedRows& shape) {
  Graph g(ops::builtin(), "picked");
  const graph::Dim rows(shape.rows), samples(shape.samples);
  const TensorId wanted = g.state("wanted", DType::i32, {samples}), all = g.state("all", DType::i32, {rows});
  const TensorId x = g.apply("gather_rows", "x", {g.state("input", DType::f32, {rows, kWidth}), all});
  const TensorId normed = g.apply("rmsnorm", "norm", {x, g.constant("norm.weight", DType::bf16, {kWidth})});
  const auto project = [&](const char* name, TensorId of, int64_t columns, int64_t inner) {
    return g.apply("linear", name, {of, g.constant(std::string(name) + ".weight", DType::bf16, {columns, inner})});
  };
  const TensorId gate = project("gate", normed, kInner, kWidth), up = project("up", normed, kInner, kWidth);
  const TensorId down = project("down", g.apply("silu_mul", "gated", {gate, up}), kWidth, kInner);
  TensorId other = x;
  if (shape.is_state) {
    other = g.state("other", DType::f32, {rows, kWidth});
    g.apply("copy", "change", {x}, {.outputs = {{"y", other}}});
  }
  const TensorId sum = g.apply("add", "sum", {other, down});
  if (shape.is_written)
    g.apply("argmax", "choose", {g.state("scores", DType::f32, {samples, shape.rows})},
            {.outputs = {{"best", wanted}}});
  if (shape.is_read) g.apply("copy", "look", {sum}, {.outputs = {{"y", g.state("seen", DType::f32, {rows, kWidth})}}});
  g.apply("gather_rows", "pick", {sum, wanted}, {.outputs = {{"y", g.state("result", DType::f32, {samples, kWidth})}}});
  return g;
}

Graph gathered_first(const Graph& graph, const std::string& target) {
  std::string others;
  for (const Rule& rule : rules())
    if (rule.name != std::string("gather_first")) others += (others.empty() ? "" : ",") + std::string(rule.name);
  const test::EnvironmentVariable off("MEGALITH_DISABLE", others);
  return optimize(graph, target);
}

int64_t rows_of(const Graph& graph, const std::string& node) {
  return graph.nodes()[graph.number_of(node)].sizes.at("T");
}

TEST(GatherFirst, MovesInFrontOfAllThatGoesRowByRow) {
  for (const char* target : {"cpu", "cuda:sm_90a"}) {
    const Graph before = picked_mlp({}), after = gathered_first(before, target);
    for (const char* node : {"norm", "gate", "up", "gated", "down", "sum"}) EXPECT_EQ(rows_of(after, node), 2) << node;
    EXPECT_EQ(std::ranges::count(after.nodes(), "gather_rows", [](const Node& node) { return node.op->name; }), 2)
        << print(after);
    loop::Arrays wanted = random_arrays(before, 5);
    for (size_t i = 0; i < wanted.at("all").values.size(); ++i)
      wanted.at("all").values[i] = static_cast<double>(i * 7 % 160);
    wanted.at("wanted").values = {151, 3};
    loop::Arrays found = wanted;
    graph::interpret(before, lower(before, "cpu"), wanted, 1);
    graph::interpret(after, lower(after, "cpu"), found, 1);
    EXPECT_EQ(found.at("result").values, wanted.at("result").values);
  }
}

TEST(GatherFirst, LeavesAloneWhatOthersReadAndWhatIsNotWorthIt) {
  const auto changes = [](const PickedRows& shape, const char* target) {
    return !gathered_first(picked_mlp(shape), target).rewrites().empty();
  };
  for (const char* target : {"cpu", "cuda:sm_90a"}) {
    EXPECT_TRUE(changes({}, target));
    EXPECT_FALSE(changes({.is_read = true}, target));
    EXPECT_FALSE(changes({.is_written = true}, target));
    EXPECT_FALSE(changes({.is_state = true}, target));
    EXPECT_FALSE(changes({.samples = 100}, target));
    EXPECT_FALSE(changes({.rows = 8}, target));
  }
  // Up to 128 rows a GPU takes the time of the weights.
  EXPECT_FALSE(changes({.rows = 64}, "cuda:sm_90a"));
  EXPECT_TRUE(changes({.rows = 64}, "cpu"));
}

}  // namespace
}  // namespace megalith::optimize
