// The protocol under load: task graphs with random delays on real memory, judged by a sequential run, and by
// ThreadSanitizer in the builds that have it. The last tests show that both judges can say no.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "megalith/base/error.h"
#include "runtime/stress_run.h"
#include "support/random_task_graph.h"

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

namespace megalith::runtime {
namespace {

/// A graph over one-dimensional f32 buffers of `elements` elements each.
struct HandMade {
  task::TaskGraph graph;
  int64_t elements;

  HandMade(int num_workers, int num_buffers, int64_t num_elements) : elements(num_elements) {
    graph.name = "hand-made";
    graph.workers.resize(static_cast<size_t>(num_workers));
    for (int b = 0; b < num_buffers; ++b)
      graph.buffers.push_back({.name = fmt::format("b{}", b),
                               .dtype = DType::f32,
                               .shape = {elements},
                               .memory = task::Memory::state,
                               .bytes = elements * 4});
  }
  task::Region all(int buffer) const { return {buffer, {{0}, {elements}}}; }
  task::Region part(int buffer, int64_t begin, int64_t end) const { return {buffer, {{begin}, {end}}}; }
  int event(int64_t arrivals) {
    graph.events.push_back({fmt::format("e{}", graph.events.size()), arrivals});
    return static_cast<int>(graph.events.size()) - 1;
  }
  void task(int worker, std::vector<task::Region> reads, std::vector<task::Region> writes,
            std::vector<task::Wait> waits, std::vector<int> signals) {
    const int index = static_cast<int>(graph.tasks.size());
    graph.tasks.push_back({.name = fmt::format("t{}", index),
                           .reads = std::move(reads),
                           .writes = std::move(writes),
                           .waits = std::move(waits),
                           .signals = std::move(signals),
                           .worker = worker});
    graph.workers[static_cast<size_t>(worker)].push_back(index);
  }
};

/// Buffer 0 is written in two halves, read across the seam by two, whose results meet in one; the halves of the next
/// iteration wait for the readers of this one.
task::TaskGraph fork_join(bool drop_a_wait = false) {
  HandMade g(2, 4, 64);
  const int halves = g.event(2), sides = g.event(2), end = g.event(1);
  g.task(0, {}, {g.part(0, 0, 32)}, {{sides, 2, 1}}, {halves});
  g.task(1, {g.all(3)}, {g.part(0, 32, 64)}, {{sides, 2, 1}}, {halves});
  g.task(0, {g.part(0, 10, 50)}, {g.all(1)}, {{halves, 2, 0}, {end, 1, 1}}, {sides});
  std::vector<task::Wait> waits = {{halves, 2, 0}};
  if (drop_a_wait) waits.clear();
  g.task(1, {g.all(0)}, {g.all(2)}, waits, {sides});
  g.task(1, {g.all(1), g.all(2)}, {g.all(3)}, {{sides, 2, 0}}, {end});
  return g.graph;
}

/// A ring of tasks over `workers` workers: each reads its neighbour's buffer and its own, and rewrites its own.
task::TaskGraph ring(int workers, int rounds) {
  HandMade g(workers, workers, 16);
  std::vector<int> previous;
  for (int round = 0; round < rounds; ++round) {
    // All of a round read, then all write: two barriers of counters.
    std::vector<task::Wait> waits;
    if (!previous.empty()) waits.push_back({previous[0], workers, 0});
    const int read = g.event(workers), written = g.event(workers);
    for (int w = 0; w < workers; ++w) {
      const int neighbour = (w + 1) % workers;
      g.task(w, {g.all(neighbour), g.all(w)}, {}, waits, {read});
    }
    for (int w = 0; w < workers; ++w) g.task(w, {g.all(w)}, {g.all(w)}, {{read, workers, 0}}, {written});
    previous = {written};
  }
  g.graph.gate = previous[0];
  return g.graph;
}

TEST(Stress, ForkJoin) {
  const task::TaskGraph graph = fork_join();
  for (uint64_t seed = 0; seed < 8; ++seed)
    ASSERT_EQ(StressRun(graph, {.seed = seed, .num_iterations = 50}).mismatches(), 0) << "seed " << seed;
}

TEST(Stress, ForkJoinAcrossTheWrap) {
  const task::TaskGraph graph = fork_join();
  for (uint64_t seed = 0; seed < 8; ++seed)
    ASSERT_EQ(StressRun(graph, {.seed = seed, .num_iterations = 50, .first_iteration = 0u - 25}).mismatches(), 0)
        << "seed " << seed;
}

TEST(Stress, RingOfManyWorkers) {
  for (int workers = 1; workers <= 5; ++workers) {
    const task::TaskGraph graph = ring(workers, 3);
    for (uint64_t seed = 0; seed < 10; ++seed)
      ASSERT_EQ(StressRun(graph, {.seed = seed, .num_iterations = 10}).mismatches(), 0)
          << workers << " workers, seed " << seed;
  }
}

TEST(Stress, RandomGraphs) {
  // ThreadSanitizer makes each graph slower and worth more: what it sees does not depend on who came first.
  constexpr uint64_t kGraphs = kThreadSanitizer ? 2000 : 200;
  const auto begin = std::chrono::steady_clock::now();
  int64_t tasks = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const task::TaskGraph graph = test::random_task_graph(seed);
    StressOptions options{.seed = seed, .num_iterations = 4};
    options.first_iteration = seed % 3 == 0 ? 0u - 2 : 0;               // counters that wrap on the way
    options.max_delay_us = seed % 4 == 0 ? 0 : seed % 4 == 1 ? 20 : 5;  // also as fast as it goes
    ASSERT_EQ(StressRun(graph, options).mismatches(), 0) << "seed " << seed;
    tasks += static_cast<int64_t>(graph.tasks.size()) * options.num_iterations;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("[ FIGURE   ] %d random graphs, %lld tasks run, %.0f s\n", static_cast<int>(kGraphs),
              static_cast<long long>(tasks), seconds);
}

TEST(StressCanFail, ValueOfADroppedWait) {
  // The first halves are slow, and the task that no longer waits for them reads at once. Under ThreadSanitizer the
  // report would end the program, so there only the test below runs.
  if (kThreadSanitizer) GTEST_SKIP() << "[SKIP] the race is a report here, see StressCanFail.Report";
  const task::TaskGraph graph = fork_join(true);
  EXPECT_GT(StressRun(graph, {.num_iterations = 20, .delay_us = {5000, 0, 0, 0, 0}}).mismatches(), 0);
}

TEST(StressCanFail, Report) {
  if (!kThreadSanitizer) GTEST_SKIP() << "[SKIP] needs a build with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const task::TaskGraph graph = fork_join(true);
  // 66 is ThreadSanitizer's exit code after a report.
  EXPECT_EXIT(
      {
        StressRun(graph, {.num_iterations = 20, .delay_us = {100, 0, 0, 0, 0}}).mismatches();
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}

}  // namespace
}  // namespace megalith::runtime
