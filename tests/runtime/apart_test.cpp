// Memory that somebody brings for the tensors of a graph: two of them that share bytes, one of which is written.
#include "megalith/runtime/apart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/graph/operator.h"

namespace megalith::runtime {
namespace {

std::shared_ptr<const graph::Registry> registry() {
  auto result = std::make_shared<graph::Registry>();
  result->add(graph::operator_("copy", "y = x")
                  .input("x", {"N"})
                  .output("y", {"N"})
                  .loops("{ [n] : 0 <= n < N }\ny[n] = x[n]"));
  return result;
}

// x -> y, with z read by nobody's writer: v = z.
std::string complaint(int64_t x_at, int64_t y_at, int64_t z_at) {
  graph::Graph graph(registry());
  const auto x = graph.state("x", DType::f32, {16}), y = graph.state("y", DType::f32, {16}),
             z = graph.state("z", DType::f32, {16});
  graph.add("copy", "to_y", {x}, {.outputs = {{"y", y}}});
  graph.add("copy", "activation", {z});
  static std::vector<std::byte> memory(1024);
  try {
    check_apart(graph, {{"x", &memory[static_cast<size_t>(x_at)]},
                        {"y", &memory[static_cast<size_t>(y_at)]},
                        {"z", &memory[static_cast<size_t>(z_at)]},
                        {"no tensor of the graph", &memory[0]}});
    return "";
  } catch (const UserError& error) { return error.what(); }
}

TEST(Apart, TensorsThatLieApart) {
  EXPECT_EQ(complaint(0, 64, 128), "");
  EXPECT_EQ(complaint(128, 64, 0), "");
}

TEST(Apart, WhatIsOnlyReadMayOverlap) {
  EXPECT_EQ(complaint(0, 128, 0), "");
  EXPECT_EQ(complaint(32, 128, 0), "");
}

TEST(Apart, AWrittenOneMayNot) {
  EXPECT_EQ(complaint(0, 32, 512),
            "\"x\" and \"y\" share memory, and node \"to_y\" writes \"y\": bring tensors that lie apart");
  EXPECT_EQ(complaint(60, 0, 512),
            "\"y\" and \"x\" share memory, and node \"to_y\" writes \"y\": bring tensors that lie apart");
  EXPECT_NE(complaint(512, 0, 0), "");
  EXPECT_NE(complaint(512, 60, 0), "") << "of a tensor that another node reads";
}

// A long one before, and a short one that ends within it: the one that ends last is not the neighbour.
TEST(Apart, AlsoBehindAnotherNeighbour) {
  graph::Graph graph(registry());
  const auto large = graph.state("large", DType::f32, {128}), small = graph.state("small", DType::f32, {4}),
             y = graph.state("y", DType::f32, {4});
  graph.add("copy", "a", {large});
  graph.add("copy", "b", {small}, {.outputs = {{"y", y}}});
  std::vector<std::byte> memory(1024);
  const auto check = [&](size_t large_at, size_t small_at, size_t y_at) {
    check_apart(graph, {{"large", &memory[large_at]}, {"small", &memory[small_at]}, {"y", &memory[y_at]}});
  };
  EXPECT_NO_THROW(check(0, 0, 512));
  EXPECT_THROW(check(0, 8, 496), UserError);
  EXPECT_THROW(check(0, 600, 508), UserError);
}

}  // namespace
}  // namespace megalith::runtime
