// The chunks of attention are cut as the grid that a user gave for the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/graph/text.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"

namespace megalith::optimize {
namespace {

using graph::TensorId;
using ::testing::ContainsRegex;

TEST(SplitKv, KeepsPiecesOfAGrid) {
  graph::Graph g(ops::builtin(), "attention");
  const TensorId q = g.state("q", DType::f32, {6, 128}), k = g.state("k", DType::bf16, {8, 16, 2, 32}),
                 v = g.state("v", DType::bf16, {8, 16, 2, 32}), table = g.state("table", DType::i32, {3, 16}),
                 request = g.state("request", DType::i32, {6}), position = g.state("position", DType::i32, {6});
  g.apply("attention", "a", {q, k, v, table, request, position},
          {.sizes = {{"S", 200}}, .pieces = {{"g", 2}, {"t", 3}}});
  const std::string text = print(optimize(std::move(g), "cpu"));
  EXPECT_THAT(text, ContainsRegex(" = attention_partial\\([^\n]* pieces.g=2 pieces.t=3  # a\n"));
  EXPECT_THAT(text, ContainsRegex(" = attention_merge\\([^\n]* pieces.a=2 pieces.t=3  # a_merge\n"));
}

}  // namespace
}  // namespace megalith::optimize
