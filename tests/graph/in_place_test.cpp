// One tensor for two operands of a node: refused by name where it would change what the node means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/graph/graph.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/text.h"

namespace megalith::graph {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Registry> in_place_registry() {
  auto result = std::make_shared<Registry>();
  result->add(operator_("product", "y = residual + x weight^T")
                  .input("x", {"T", "K"})
                  .input("weight", {"N", "K"})
                  .input("residual", {"T", "N"})
                  .output("y", {"T", "N"})
                  .loops(R"({ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
                            y[t, n] = residual[t, n] + sum(k, x[t, k] * weight[n, k]))")
                  .tasks({"n"})
                  .body({.target = "cpu", .file = "gemv.h", .name = "gemv", .in_place = {"residual"}}));
  result->add(operator_("append", "both caches")
                  .input("k", {"T"})
                  .inout("k_cache", {"T"})
                  .inout("v_cache", {"T"})
                  .loops("{ [t] : 0 <= t < T }\nk_cache[t] = k[t]\nv_cache[t] = k[t]"));
  result->add(operator_("twice", "y = 2 x")
                  .input("x", {"T"})
                  .output("y", {"T"})
                  .attribute("factor", 2)
                  .loops("{ [t] : 0 <= t < T }\ny[t] = factor * x[t]")
                  .tasks({"t"})
                  .body("cpu", "twice.h", "twice"));
  result->add(operator_("opaque", "y = f(x)")
                  .input("x", {"T"})
                  .output("y", {"T"})
                  .loops("{ [t] : 0 <= t < T }\ny[t] = x[t]")
                  .reference([](const loop::Binding&, loop::Arrays&) {}));
  return result;
}

TEST(InPlace, AnInputThatIsReadAfterItIsWritten) {
  Graph g(in_place_registry());
  const TensorId x = g.state("hidden", DType::f32, {4, 16}), w = g.constant("w", DType::f32, {16, 16}),
                 r = g.state("r", DType::f32, {4, 16});
  EXPECT_EQ(
      test::message_of<UserError>([&] {
        g.add("product", "down", {x, w, r}, {.outputs = {{"y", x}}});
      }),
      "[product] \"x\" is read and \"y\" is written, and both are one tensor, \"hidden\": y[t, n] is written before "
      "x[t, k] is read for the last time; take another tensor for \"y\" (node \"down\")");
  g.add("product", "down", {x, w, r}, {.outputs = {{"y", r}}});  // the name is still free
  EXPECT_EQ(g.nodes().size(), 1u);
}

TEST(InPlace, TwoOutputs) {
  Graph g(in_place_registry());
  const TensorId k = g.state("k", DType::f32, {8}), cache = g.state("cache", DType::f32, {8});
  EXPECT_EQ(
      test::message_of<UserError>([&] {
        g.add("append", "append", {k, cache, cache});
      }),
      "[append] \"k_cache\" and \"v_cache\" are one tensor, \"cache\", and the operator writes both: take a tensor for "
      "each (node \"append\")");
}

TEST(InPlace, AnOpaqueOperator) {
  Graph g(in_place_registry());
  const TensorId x = g.state("x", DType::f32, {8});
  EXPECT_THAT(test::message_of<UserError>([&] {
                g.add("opaque", "f", {x}, {.outputs = {{"y", x}}});
              }),
              HasSubstr("what an opaque operator does in which order nobody knows"));
}

// The two operands become one, so that generated code knows; and a body is taken only if it can.
TEST(InPlace, WhatIsFineIsOneOperand) {
  Graph g(in_place_registry());
  const TensorId x = g.state("x", DType::f32, {8}), y = g.state("y", DType::f32, {8});
  g.add("twice", "apart", {x}, {.outputs = {{"y", y}}});
  g.add("twice", "in_place", {x}, {.outputs = {{"y", x}}});
  const LoweredGraph lowered = lower(g, schedule_in_rows(g, "cpu"));
  ASSERT_EQ(lowered.kernels.size(), 2u);
  EXPECT_NE(lowered.kernels[0].body, nullptr);
  EXPECT_EQ(lowered.kernels[1].body, nullptr) << "nobody said that it works in place";
  EXPECT_THAT(print(g, lowered), HasSubstr("y[t] = factor * y[t]"));
  const TensorId h = g.state("h", DType::f32, {4, 16});
  g.add("product", "sum", {g.state("a", DType::f32, {4, 16}), g.constant("w", DType::f32, {16, 16}), h},
        {.outputs = {{"y", h}}});
  EXPECT_NE(lower(g, schedule_in_rows(g, "cpu")).kernels[2].body, nullptr) << "this one did";
}

// ---- loops.txt -------------------------------------------------------------------------------------------------------

struct Edited {
  Graph g{in_place_registry()};
  std::string text;

  Edited() {
    g.add("twice", "y", {g.state("x", DType::f32, {8})}, {.attributes = {{"factor", 3}}});
    text = print(g, lower(g, schedule_in_rows(g, "cpu")));
  }
  void replace(const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, from.size(), to);
  }
  LoweredKernel parse() const { return parse_loops(text, g, lower(g, schedule_in_rows(g, "cpu"))).kernels.at(0); }
  std::string error() const {
    return test::message_of<UserError>([&] { parse(); });
  }
};

TEST(EditedLoops, AnAttributeHasItsEffect) {
  Edited edited;
  EXPECT_EQ(edited.parse().binding.attributes.at("factor"), 3);
  edited.replace("attribute factor = 3", "attribute factor = 5");
  const LoweredKernel kernel = edited.parse();
  EXPECT_EQ(kernel.binding.attributes.at("factor"), 5);
  EXPECT_NE(kernel.body, nullptr) << "the operator's own meaning, with another number";
  edited.replace("factor * x[t]", "x[t]");
  EXPECT_EQ(edited.parse().body, nullptr);
}

TEST(EditedLoops, WhatWouldChangeNothingIsRefused) {
  const auto after = [](const std::string& from, const std::string& to) {
    Edited edited;
    edited.replace(from, to);
    return edited.error();
  };
  EXPECT_EQ(after("attribute factor = 3\n", ""), "the kernel \"twice_0\" must keep its attributes: factor");
  EXPECT_EQ(after("attribute factor = 3\n", "attribute factor = 3\nattribute other = 1\n"),
            "the kernel \"twice_0\" must keep its attributes: factor");
  EXPECT_EQ(after("parameter T", "parameter T dynamic"), "the kernel \"twice_0\" must keep its parameters: T");
  EXPECT_EQ(after("x: f32[T]", "x: f32[T + 8]"),
            "the kernel \"twice_0\" must keep the shape of its operand \"x\", [T]");
  EXPECT_EQ(after("tag t = task", "tag t = loop"),
            "the kernel \"twice_0\" must keep its tags: tasks are cut along (t)");
  EXPECT_EQ(after("tag t = task", "assume T >= 9"), "[twice] no sizes are as it assumes: 8 >= 9");
  Edited edited;
  edited.text += edited.text.substr(edited.text.find("\nkernel "));
  EXPECT_EQ(edited.error(), "the loop kernel \"twice_0\" stands there twice");
  edited = {};
  edited.text = "attribute factor = 9\n" + edited.text;
  EXPECT_EQ(edited.error(), "\"attribute factor = 9\" stands before the first loop kernel");
}

}  // namespace
}  // namespace megalith::graph
