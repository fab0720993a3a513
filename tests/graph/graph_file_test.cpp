// A graph's file: it says all that a graph is, and what is wrong with it is said by line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/graph/declare.h"
#include "megalith/graph/graph_file.h"
#include "megalith/graph/text.h"

namespace megalith::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::shared_ptr<const Registry> known() {
  auto registry = std::make_shared<Registry>();
  registry->add(operator_("linear", "y = x weight^T")
                    .input("x", {"T", "K"})
                    .input("weight", {"N", "K"}, DType::bf16)
                    .output("y", {"T", "N"})
                    .loops(R"({ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
                              y[t, n] = sum(k, x[t, k] * weight[n, k]))")
                    .tasks({"n", "t"}));
  registry->add(operator_("count_up", "adds one, in place")
                    .inout("x", {"N"}, DType::i32)
                    .output("stop", {"1"}, DType::i32)
                    .loops(R"({ [n] : 0 <= n < N }
                              x[n] = x[n] + 1
                              stop[0] = if(x[0] >= 3, 1, 0))"));
  return registry;
}

Operator pick() {
  return declare({.name = "pick",
                  .doc = "y = scale * the row that is asked for, in groups",
                  .text = R"(
                    parameter G
                    attribute scale = 0.5
                    input x: f32[R, G * L]
                    input row: i32[T]
                    output y: f32[T, G, L]
                    { [t, g, l] : 0 <= t < T and 0 <= g < G and 0 <= l < L }
                    y[t, g, l] = scale * f32(x[row[t], g * L + l])
)",
                  .axes = {{"g", 2}, {"t", 1}},
                  .index = {{"row", "R"}},
                  .tests = {{{"T", 2}, {"R", 3}, {"G", 4}, {"L", 5}}},
                  .bodies = {}});
}

// Everything that a graph may have.
Graph whole() {
  auto registry = std::make_shared<Registry>(*known());
  registry->add(pick());
  Graph g(registry, "all, of it");
  g.dynamic_size("rows", g.state("counts", DType::i32, {2}), 1);
  const TensorId x = g.state("the x", DType::bf16, {7, 12}, true), row = g.state("row", DType::i32, {Dim(3, "rows")}),
                 stop = g.state("stop", DType::i32, {1});
  g.state("shared", DType::bf16, {7, 12}, true, true);
  const TensorId both = g.stacked("both", DType::bf16, {8, 6}, {"gate (1)", "up"}, 2);
  const TensorId picked = g.apply("pick", "picked", {x, row}, {.sizes = {{"G", 2}}, .attributes = {{"scale", 0.25}}});
  const TensorId flat = g.activation("flat", DType::f16, {Dim(3, "rows"), 6});
  g.add("linear", "first", {flat, both}, {.pieces = {{"n", 3}}});
  g.add("linear", "second", {flat, g.constant("w", DType::f32, {4, 6})},
        {.tile = {{"n", 4}}, .dtypes = {{"y", DType::bf16}}});
  g.add("count_up", "count", {g.find("counts")}, {.outputs = {{"stop", stop}}});
  g.set_gate("count", stop);
  EXPECT_EQ(g.tensor(picked).shape.size(), 3u);
  return g;
}

TEST(GraphFile, SaysAllThatAGraphIs) {
  const std::string text = to_file({whole(), {{"row", {2, 0, 1}}}}, *known());
  EXPECT_THAT(text, AllOf(StartsWith("operator pick\n  tasks g 2, t 1\n  index row: R\n"),
                          HasSubstr("\ngraph all\\x2c\\x20of\\x20it\n"), HasSubstr("\nvalues row = 2, 0, 1\n")));
  // `flat` is written by nobody, so no line makes it: here it is a state.
  std::string with_flat = text;
  with_flat.insert(with_flat.find("dynamic "), "state flat: f16[rows<=3, 6]\n");
  const GraphFile read = from_file(with_flat, known());
  EXPECT_EQ(read.values.at("row"), (std::vector<int64_t>{2, 0, 1}));
  EXPECT_EQ(definition(read.graph.registry().get("pick")), definition(pick()));
  const std::string again = to_file(read, *known());
  EXPECT_EQ(to_file(from_file(again, known()), *known()), again);
  // The lines of nodes and of what decides when it ends are those of the graph that was written.
  EXPECT_EQ(again.substr(again.find("picked: ")), text.substr(text.find("picked: ")));
  for (const char* line : {"constant both: bf16[8, 6] = stacked(gate\\x20\\x281\\x29, up) in 2 groups\n",
                           "state the\\x20x: bf16[7, 12] in any layout\n",
                           "state shared: bf16[7, 12] in any layout by load\n", "dynamic rows = counts[1]\n"})
    EXPECT_THAT(again, HasSubstr(line));
}

std::string error_of(const std::string& text) {
  try {
    from_file(text, known());
  } catch (const UserError& error) { return error.what(); }
  return "no error";
}

TEST(GraphFile, SaysByLineWhatIsWrong) {
  const std::string head = "graph g\nstate x: f32[2, 4]\nstate n: i32[2]\nconstant w: bf16[3, 4]\n";
  EXPECT_THAT(error_of(""), HasSubstr("there is no line that begins with \"graph \""));
  EXPECT_THAT(error_of("state x: f32[2]\n"), StartsWith("line 1 of the graph's file: \"state x"));
  EXPECT_THAT(error_of(head + "y: f32[2, 3] = lineer(x, w)  # y\n"),
              AllOf(StartsWith("line 5 of the graph's file: there is no operator \"lineer\" (node \"y\")"),
                    HasSubstr("Graph.to_file()")));
  EXPECT_THAT(error_of(head + "y: f32[2, 3] = linear(x, v)  # y\n"), HasSubstr("no tensor \"v\""));
  EXPECT_THAT(error_of(head + "y: f32[2, 5] = linear(x, w)  # y\n"), HasSubstr("[linear]"));
  EXPECT_THAT(error_of(head + "y: f32[2, 3], z: f32[1] = linear(x, w)  # y\n"),
              HasSubstr("[linear] does not write \"z\""));
  EXPECT_THAT(error_of(head + "n: i32[2] = count_up(n)  # c\n"), HasSubstr("[count_up] writes \"stop\", too"));
  EXPECT_THAT(error_of(head + "what is this\n"), HasSubstr("\"what is this\" is no tensor and no node"));
  EXPECT_THAT(error_of(head + "values n = 1\n"), HasSubstr("\"n\" has 1 values, want 2"));
  EXPECT_THAT(error_of(head + "values x = 1\n"), HasSubstr("\"x\" has values, and is no state of integers"));
  EXPECT_THAT(error_of("graph g\nstate x: f32[2, four]\n"), HasSubstr("\"four\" is no number"));
  EXPECT_THAT(error_of("graph g\nstate x: f64[2]\n"), HasSubstr("f64"));
  EXPECT_THAT(error_of("operator one\n  test T=1\n"), HasSubstr("the operator \"one\" does not end"));
  EXPECT_THAT(
      error_of("operator linear\n  test T=1\n  output y: f32[T]\n  { [t] : 0 <= t < T }\n  y[t] = 1\nend\ngraph g\n"),
      HasSubstr("linear"));
}

TEST(GraphFile, HasNoBodies) {
  auto registry = std::make_shared<Registry>();
  Operator op = pick();
  op.bodies.push_back({.target = "cpu", .file = "a text", .name = "pick", .text = "void pick(const auto& task) {}"});
  registry->add(op);
  Graph g(registry);
  g.add("pick", "picked", {g.state("x", DType::f32, {3, 4}), g.state("row", DType::i32, {2})}, {.sizes = {{"G", 2}}});
  try {
    to_file({g, {}}, *known());
    FAIL() << "no error";
  } catch (const UserError& error) { EXPECT_THAT(error.what(), StartsWith("[pick] has a body of its own (cpu)")); }
}

}  // namespace
}  // namespace megalith::graph
