// Large files, and files made to take long: reading and proving grow with the file, or end with a word.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "megalith/base/error.h"
#include "megalith/task/json.h"
#include "megalith/task/verify.h"

namespace megalith::test {
namespace {

using task::Memory;
using task::Region;
using task::TaskGraph;
using ::testing::HasSubstr;

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Task i waits for task i - 1 and signals the next one; the workers take turns.
TaskGraph chain(int num_tasks, int num_workers) {
  TaskGraph graph{.name = "chain"};
  graph.workers.resize(static_cast<size_t>(num_workers));
  for (int t = 0; t < num_tasks; ++t) {
    task::Task task{.name = fmt::format("t{}", t), .node = t};
    if (t > 0) task.waits = {{t - 1, 1, 0}};
    task.signals = {t};
    task.worker = t % num_workers;
    graph.workers[static_cast<size_t>(task.worker)].push_back(t);
    graph.tasks.push_back(std::move(task));
    graph.events.push_back({fmt::format("e{}", t), 1});
  }
  graph.gate = num_tasks - 1;
  return graph;
}
int add(TaskGraph& graph, const std::string& name, int64_t size, Memory memory = Memory::state, int64_t offset = 0) {
  graph.buffers.push_back({name, DType::f32, {size}, memory, offset, 4 * size});
  return static_cast<int>(graph.buffers.size()) - 1;
}

// Each writes one element of one buffer, and reads the one before.
TaskGraph elements(int num_tasks, int num_workers) {
  TaskGraph graph = chain(num_tasks, num_workers);
  add(graph, "x", num_tasks);
  for (int t = 0; t < num_tasks; ++t) {
    task::Task& task = graph.tasks[static_cast<size_t>(t)];
    task.writes = {{0, {{t}, {t + 1}}}};
    if (t > 0) task.reads = {{0, {{t - 1}, {t}}}};
  }
  return graph;
}

// As many arena buffers as tasks, in two places.
TaskGraph two_places(int num_tasks, int num_workers) {
  TaskGraph graph = chain(num_tasks, num_workers);
  graph.arena_bytes = 128;
  for (int t = 0; t < num_tasks; ++t) {
    add(graph, fmt::format("x{}", t), 16, Memory::arena, 64 * (t % 2));
    task::Task& task = graph.tasks[static_cast<size_t>(t)];
    task.writes = {{t, {{0}, {16}}}};
    if (t > 0) task.reads = {{t - 1, {{0}, {16}}}};
  }
  return graph;
}

// Elements of a matrix along its diagonal: as many cells as the square of their number.
TaskGraph diagonal(int num_tasks, int num_workers) {
  TaskGraph graph = elements(num_tasks, num_workers);
  graph.buffers[0].shape = {num_tasks, num_tasks};
  graph.buffers[0].bytes *= num_tasks;
  for (task::Task& task : graph.tasks)
    for (std::vector<Region>* regions : {&task.reads, &task.writes})
      for (Region& region : *regions)
        region.box.lo.push_back(region.box.lo[0]), region.box.hi.push_back(region.box.hi[0]);
  return graph;
}

// A million tasks take some ten seconds where an optimised build has a core to itself; so many a second or two.
TEST(Large, ReadAndProvedInTimeThatGrowsWithTheFile) {
#ifdef MEGALITH_SANITIZE
  constexpr double kSeconds = 60;
#else
  constexpr double kSeconds = 20;
#endif
  for (const auto& make : {elements, two_places, diagonal})
    for (const auto& [workers, num_tasks] : {std::pair{1, 10'000}, {3, 100'000}, {64, 10'000}}) {
      const TaskGraph graph = make(num_tasks, workers);
      const std::string text = task::to_json(graph);
      TaskGraph read;
      task::VerifyResult result;
      const double reading = seconds_of([&] { read = task::from_json(text); });
      const double proving = seconds_of([&] { result = task::verify(read); });
      EXPECT_EQ(result.text(), "") << workers;
      EXPECT_EQ(read.tasks.size(), graph.tasks.size());
      EXPECT_LT(reading, kSeconds);
      EXPECT_LT(proving, kSeconds) << workers;
      std::printf("[ FIGURE   ] %d tasks, %d workers, %zu MB: read in %.2f s, proved in %.2f s\n", num_tasks, workers,
                  text.size() >> 20, reading, proving);
    }
}

TEST(Large, ARaceAmongManyIsFound) {
  for (const auto& make : {elements, two_places, diagonal}) {
    TaskGraph graph = make(50'000, 3);
    graph.tasks[40'000].waits.clear();
    EXPECT_THAT(task::verify(graph).text(), HasSubstr("nothing orders them"));
  }
}

// ---- made to take long -----------------------------------------------------------------------------------------------

// Every task reads all that was written before it.
TEST(Large, AGraphThatIsTooIntricateIsRefused) {
  TaskGraph graph = elements(200'000, 1);
  for (int t = 1; t < 200'000; ++t) graph.tasks[static_cast<size_t>(t)].reads[0].box.lo = {0};
  std::string text;
  EXPECT_LT(seconds_of([&] { text = task::verify(graph).text(); }), 120);
  EXPECT_THAT(text, HasSubstr("structure: the graph is too intricate to be proved"));
}

// Each buffer of the arena lies within the one before it.
TEST(Large, AnArenaThatIsTooIntricateIsRefused) {
  constexpr int kBuffers = 100'000;
  TaskGraph graph = chain(kBuffers, 1);
  for (int b = 0; b < kBuffers; ++b) {
    add(graph, fmt::format("x{}", b), 32 * (kBuffers - b), Memory::arena, 64 * b);
    graph.tasks[static_cast<size_t>(b)].writes = {{b, {{0}, {16}}}};
  }
  graph.arena_bytes = 64 * 3 * kBuffers;
  std::string text;
  EXPECT_LT(seconds_of([&] { text = task::verify(graph).text(); }), 120);
  EXPECT_THAT(text, HasSubstr("too intricate"));
}

// One task waits for a hundred thousand events that come one by one.
TEST(Large, ATaskWithManyWaits) {
  constexpr int kTasks = 100'000;
  TaskGraph graph = chain(kTasks, 1);
  graph.gate.reset();
  task::Task last{.name = "last", .node = kTasks, .worker = 1};
  for (int t = 0; t < kTasks; ++t) last.waits.push_back({t, 1, 0});
  graph.tasks.push_back(last);
  graph.workers.push_back({kTasks});
  std::string text;
  EXPECT_LT(seconds_of([&] { text = task::verify(graph).text(); }), 20);
}

TEST(Large, WorkersAreAsManyAsAnyMachineHas) {
  TaskGraph graph = chain(4, 2);
  graph.workers.resize(100'000);
  EXPECT_THAT(task::verify(graph).text(), HasSubstr("there are 100000 workers, want at most"));
}

TEST(Large, SizesAtTheEndOf64Bits) {
  TaskGraph graph = chain(1, 1);
  graph.buffers.push_back({"x", DType::f32, {int64_t{1} << 31, int64_t{1} << 31}, Memory::state, 0, int64_t{1} << 60});
  EXPECT_THAT(task::verify(graph).text(), HasSubstr("want sizes from 0 whose product fits 63 bits"));
  graph.buffers[0] = {"x", DType::i8, {int64_t{1} << 30, int64_t{1} << 30}, Memory::state, 0, int64_t{1} << 60};
  graph.tasks[0].writes = {{0, {{0, 0}, {int64_t{1} << 30, int64_t{1} << 30}}}};
  EXPECT_EQ(task::verify(graph).text(), "");
}

}  // namespace
}  // namespace megalith::test
