// Graphs that are built by hand, on memory of the caller's: stacked constants, several iterations, several threads, and
// what is said of memory that will not do.
#include "megalith/engine/graph_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/ops/registry.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;

// y = y + x, over and over.
struct Counter {
  graph::Graph graph{ops::builtin(), "counter"};
  std::vector<float> x = std::vector<float>(64, 1), y = std::vector<float>(64, 0);
  jit::CompiledKernel kernel;

  Counter() {
    const auto one = graph.state("x", DType::f32, {1, 64}), sum = graph.state("y", DType::f32, {1, 64});
    graph.add("add", "add", {sum, one}, {.outputs = {{"y", sum}}});
    kernel = jit::compile(graph, {.num_workers = 2});
  }
  std::map<std::string, TensorMemory> memory() { return {{"x", {x.data()}}, {"y", {y.data()}}}; }
};

std::string message(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                    const std::map<std::string, TensorMemory>& memory) {
  try {
    GraphRunner runner(graph, kernel, memory);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(GraphRunner, RunsOnMemoryThatItDoesNotOwn) {
  Counter counter;
  GraphRunner runner(counter.graph, counter.kernel, counter.memory());
  runner.run();
  EXPECT_EQ(counter.y, std::vector<float>(64, 1));
  runner.run(5);
  EXPECT_EQ(counter.y, std::vector<float>(64, 6));
}

TEST(GraphRunner, ThreadsTakeTurns) {
  Counter counter;
  GraphRunner runner(counter.graph, counter.kernel, counter.memory());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) runner.run();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.y, std::vector<float>(64, 100));
}

TEST(GraphRunner, StacksConstantsOfTheirParts) {
  graph::Graph graph(ops::builtin(), "stacked");
  const auto rows = graph.stacked("both", DType::f32, {6, 16}, {"a", "b"}, 2);
  graph.add("copy", "copy", {rows}, {.outputs = {{"y", graph.state("y", DType::f32, {6, 16})}}});
  const jit::CompiledKernel kernel = jit::compile(graph, {});
  std::vector<float> a(4 * 16), b(2 * 16), y(6 * 16);
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(b.begin(), b.end(), 1000.0f);
  GraphRunner runner(graph, kernel, {{"a", {a.data(), false, 4}}, {"b", {b.data(), false, 2}}, {"y", {y.data()}}});
  runner.run();
  std::vector<float> expected(a.begin(), a.begin() + 32);
  expected.insert(expected.end(), b.begin(), b.begin() + 16);
  expected.insert(expected.end(), a.begin() + 32, a.end());
  expected.insert(expected.end(), b.begin() + 16, b.end());
  EXPECT_EQ(y, expected);
  EXPECT_GE(runner.bytes_held(), 6 * 16 * 4);

  EXPECT_EQ(message(graph, kernel, {{"a", {a.data(), false, 3}}, {"b", {b.data(), false, 2}}, {"y", {y.data()}}}),
            "\"a\" has 3 rows, which do not divide into 2 groups (\"both\")");
  EXPECT_EQ(message(graph, kernel, {{"a", {a.data(), false, 2}}, {"b", {b.data(), false, 2}}, {"y", {y.data()}}}),
            "the parts of \"both\" have 4 rows together, want 6");
  EXPECT_EQ(message(graph, kernel, {{"a", {a.data(), false, 4}}, {"y", {y.data()}}}),
            "the tensor \"b\" has no memory: attach it");
}

TEST(GraphRunner, SaysWhatItCannotRunOrRead) {
  Counter counter;
  GraphRunner runner(counter.graph, counter.kernel, counter.memory());
  auto message_of = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(message_of([&] { runner.run(0); }),
            "\"counter\" is to run until it stops, and has no termination flag: say how many iterations");
  float out[64];
  EXPECT_EQ(message_of([&] { runner.read_activation(counter.graph.find("x"), out); }),
            "\"x\" is no activation: it lies in memory of whoever made the runner");
  EXPECT_THAT(message_of([&] { runner.read_activation(99, out); }), HasSubstr("none with the id 99"));
  EXPECT_EQ(message(counter.graph, jit::compile(counter.graph, {.plan_only = true}), counter.memory()),
            "the kernel \"counter\" was only planned: compile it without plan_only");
}

// Workers once wrote to rings that a failed profile() had freed.
TEST(GraphRunner, AProfileIsTurnedOffAgainAndAFailedOneIsOff) {
  Counter counter;
  GraphRunner runner(counter.graph, counter.kernel, counter.memory());
  EXPECT_THROW(runner.trace(), UserError);
  runner.profile(4);
  runner.run(4);
  EXPECT_THAT(runner.trace(), HasSubstr("traceEvents"));
  for (const uint32_t iterations : {uint32_t{0}, ~uint32_t{0}}) {
    runner.profile(4);
    if (iterations == 0)
      runner.profile(iterations);
    else
      EXPECT_THROW(runner.profile(iterations), UserError);
    runner.run();
    EXPECT_THROW(runner.trace(), UserError);
  }
  EXPECT_EQ(counter.y, std::vector<float>(64, 6));
}

TEST(GraphRunner, SaysWhatIsWrongWithMemory) {
  Counter counter;
  auto memory = counter.memory();
  memory["x"].on_device = true;
  EXPECT_THAT(message(counter.graph, counter.kernel, memory), HasSubstr("the tensor \"x\" lies on a GPU"));
  memory = counter.memory();
  memory["y"].address = reinterpret_cast<std::byte*>(counter.y.data()) + 2;
  EXPECT_THAT(message(counter.graph, counter.kernel, memory), HasSubstr("between two elements of f32"));
}

}  // namespace
}  // namespace megalith::engine
