// The protocol of a GPU's worker on threads of the host: random task graphs with events, words and streams, judged by a
// sequential run and, in the builds that have it, by ThreadSanitizer. Then faults are planted, one for each operation
// that orders anything, and each must be found.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "device/device_run.h"
#include "support/random_task_graph.h"

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

namespace host {
extern const BlockCode block_code_0, block_code_1, block_code_2, block_code_3;
const BlockCode& block_code(int block) {
  static const BlockCode* const kCode[kBlocks] = {&block_code_0, &block_code_1, &block_code_2, &block_code_3};
  return *kCode[block];
}
}  // namespace host

namespace megalith::runtime {
namespace {

/// Calls visit(graph, seed) for `count` graphs that a GPU takes.
template <class Visit>
void for_random_graphs(int count, test::RandomTaskGraphOptions limits, Visit visit) {
  limits.max_workers = host::kBlocks;
  for (uint64_t seed = 0; count > 0; ++seed) {
    const task::TaskGraph graph = test::random_task_graph(seed, limits);
    if (!DeviceRun::fits(graph)) continue;
    visit(graph, seed);
    --count;
  }
}

constexpr int kGraphs = kThreadSanitizer ? 400 : 40;

TEST(DeviceProtocol, RandomGraphs) {
  const auto begin = std::chrono::steady_clock::now();
  int64_t tasks = 0;
  for_random_graphs(kGraphs, {.max_tasks = 40, .exchange_probability = 0.5},
                    [&](const task::TaskGraph& graph, uint64_t seed) {
                      DeviceRun run(graph, {.seed = seed, .profiles = seed % 3 == 0});
                      ASSERT_EQ(run.mismatches(), 0) << "seed " << seed;
                      ASSERT_EQ(run.runs(), static_cast<int>(4 * graph.tasks.size()));
                      tasks += run.runs();
                    });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("[ FIGURE   ] %d random graphs, %lld tasks run, %.0f s\n", kGraphs, static_cast<long long>(tasks),
              seconds);
}

// A block finds its worker by its multiprocessor, or another that is free, and its chunks in the halves of blocks.
TEST(DeviceProtocol, StreamsAndWorkersOnSides) {
  for_random_graphs(4 * kGraphs, {.max_tasks = 60, .exchange_probability = 0.3},
                    [](const task::TaskGraph& graph, uint64_t seed) {
                      if (graph.workers.size() != 2) return;
                      DeviceRun run(graph, {.seed = seed, .on_sides = true});
                      ASSERT_EQ(run.mismatches(), 0) << "seed " << seed;
                      ASSERT_EQ(run.runs(), static_cast<int>(4 * graph.tasks.size()));
                    });
}

TEST(DeviceProtocol, CountersThatWrap) {
  for_random_graphs(kGraphs / 4, {.max_tasks = 20}, [](const task::TaskGraph& graph, uint64_t seed) {
    ASSERT_EQ(DeviceRun(graph, {.seed = seed, .first_iteration = 0u - 2}).mismatches(), 0) << "seed " << seed;
  });
}

/// Two workers take turns: both halves of a buffer are written, then read by a last task, which is the gate.
task::TaskGraph two_halves() {
  task::TaskGraph graph;
  graph.name = "two_halves";
  graph.buffers = {{.name = "halves", .dtype = DType::f32, .shape = {64}, .memory = task::Memory::state, .bytes = 256}};
  graph.events = {{"halves", 2}, {"end", 1}};
  auto add = [&](int worker, std::vector<task::Region> reads, std::vector<task::Region> writes,
                 std::vector<task::Wait> waits, std::vector<int> signals) {
    graph.workers.resize(2);
    graph.workers[static_cast<size_t>(worker)].push_back(static_cast<int>(graph.tasks.size()));
    graph.tasks.push_back({.name = fmt::format("t{}", graph.tasks.size()),
                           .reads = std::move(reads),
                           .writes = std::move(writes),
                           .waits = std::move(waits),
                           .signals = std::move(signals),
                           .worker = worker});
  };
  add(0, {}, {{0, {{0}, {32}}}}, {}, {0});
  add(1, {}, {{0, {{32}, {64}}}}, {}, {0});
  add(0, {{0, {{0}, {64}}}}, {}, {{0, 2, 0}}, {1});
  graph.gate = 1;
  return graph;
}

TEST(DeviceProtocol, TheStopWordEndsAllWorkersInTheSameIteration) {
  const task::TaskGraph graph = two_halves();
  for (u32 iterations = 1; iterations <= 12; ++iterations) {
    DeviceRun run(graph, {.seed = iterations, .num_iterations = 0});
    run.stop_in(2, iterations - 1);
    ASSERT_EQ(run.mismatches(), 0);
    ASSERT_EQ(run.runs(), static_cast<int>(3 * iterations));
  }
}

// The body writes a record, and the signal warp says that it is there; the mailbox is full again and again.
TEST(DeviceProtocol, MailComesInOrder) {
  const task::TaskGraph graph = two_halves();
  constexpr u32 kIterations = 50, kCapacity = 4;
  MailRecord records[kCapacity];
  Mailbox mailbox;
  mailbox_init(&mailbox, records, kCapacity);
  std::vector<i32> taken;
  std::thread reader([&] {
    MailRecord record;
    while (taken.size() < kIterations)
      if (mailbox_take(&mailbox, &record, 1'000'000)) taken.push_back(record.token);
  });
  DeviceRun run(graph, {.seed = 5, .num_iterations = kIterations});
  run.post_from(2, &mailbox);
  EXPECT_EQ(run.mismatches(), 0);
  reader.join();
  for (u32 i = 0; i < kIterations; ++i) ASSERT_EQ(taken[i], static_cast<i32>(i));
}

/// Worker 0 writes 4 rows of 8 values in two tasks, each with its flag; worker 1 reads rows of both and is the gate.
task::TaskGraph handed_over() {
  task::TaskGraph graph;
  graph.name = "handed_over";
  graph.buffers = {
      {.name = "rows", .dtype = DType::f32, .shape = {4, 8}, .memory = task::Memory::exchange, .bytes = 256}};
  graph.events = {{"end", 1}};
  graph.gate = 0;
  graph.tasks = {{.name = "low", .writes = {{0, {{0, 0}, {2, 8}}}}, .worker = 0},
                 {.name = "high", .writes = {{0, {{2, 0}, {4, 8}}}}, .worker = 0},
                 {.name = "sum", .node = 1, .reads = {{0, {{1, 0}, {4, 8}}}}, .signals = {0}, .worker = 1}};
  graph.workers = {{0, 1}, {2}};
  return graph;
}

// As a lost signal is: who waits, for which value, what is there, and who should have written it.
TEST(DeviceProtocol, ALostFlagIsReported) {
  const task::TaskGraph graph = handed_over();
  DeviceRun run(graph, {.seed = 3, .num_iterations = 4, .first_iteration = 10});
  const std::string report = run.report_of_lost(1, 3, 2);  // rows[2, 3] of the third iteration, which is number 12
  EXPECT_THAT(report, testing::HasSubstr(
                          "worker 1 waits in task \"sum\" of iteration 12 for the flag of rows[2:3, 3:4]: has sequence "
                          "number 12, wants 13, written by \"high\" (worker 0), which has run it"));
  EXPECT_THAT(report, testing::HasSubstr("worker 0 waits at the gate of iteration 13 for event \"end\""));
}

// Nobody has lost anything here: the flag is not there because its writer waits for an event that nobody signals.
TEST(DeviceProtocol, AFlagWhoseWriterHasNotRunIsNotCalledLost) {
  task::TaskGraph graph = handed_over();
  graph.events.push_back({"never", 2});
  graph.tasks[0].signals = {1};
  graph.tasks[1].waits = {{1, 2, 0}};
  DeviceRun run(graph, {.seed = 4, .num_iterations = 4});
  const std::string report = run.report_of_lost(1, 0, 100);
  EXPECT_THAT(report,
              testing::AllOf(testing::HasSubstr("worker 1 waits in task \"sum\" of iteration 0 for the flag of "
                                                "rows["),
                             testing::HasSubstr("has sequence number 0, wants 1, written by \"high\" (worker 0), "
                                                "which has not run it"),
                             testing::HasSubstr("worker 0 waits in task \"high\" of iteration 0 for event "
                                                "\"never\": has 1, wants 2, signalled by \"low\" (worker 0)")));
}

// What an aborted run makes of its data nobody takes, so these tasks have none; but weights come, and words that they
// wait for do not.
void leave_only_words(task::TaskGraph& graph) {
  for (task::Task& task : graph.tasks) {
    task.writes.clear();
    std::erase_if(task.reads, [&](const task::Region& region) {
      return graph.buffers[static_cast<size_t>(region.buffer)].memory != task::Memory::exchange;
    });
  }
}

// A fault in data ends all workers, those too that wait for words which nobody writes; one thread tells of it, and of the
// task that it was in.
TEST(DeviceProtocol, AFaultInDataEndsTheRun) {
  int found = 0;
  for_random_graphs(6, {.max_tasks = 20, .exchange_probability = 0.5}, [&](task::TaskGraph graph, uint64_t seed) {
    leave_only_words(graph);
    for (task::Task& task : graph.tasks) task.reads.clear();
    DeviceRun run(graph, {.seed = seed, .num_iterations = 100000});
    const size_t task = seed % graph.tasks.size();
    run.fault_in(task, 3);
    run.mismatches();
    for (size_t w = 0; w < graph.workers.size(); ++w) {
      const WorkerStatus& status = run.status()[w];
      if (graph.workers[w].empty()) continue;
      EXPECT_NE(status.state, static_cast<u32>(WorkerState::finished)) << "seed " << seed << ": it went on";
      if (status.fault.found == 0) continue;
      ++found;
      EXPECT_EQ(status.fault.task, task);
      EXPECT_EQ(status.fault.check, task);
      EXPECT_GE(status.fault.value, 100);
      EXPECT_EQ(status.fault.extent, 100);
    }
  });
  EXPECT_EQ(found, 6);
}

TEST(DeviceProtocol, AnAbortedRunEnds) {
  for_random_graphs(6, {.max_tasks = 20, .exchange_probability = 0.5}, [](task::TaskGraph graph, uint64_t seed) {
    leave_only_words(graph);
    DeviceRun(graph, {.seed = seed, .num_iterations = 100000, .abort_after_us = static_cast<int>(seed * 97 % 5000)})
        .mismatches();
  });
}

// ---- planted faults ----------------------------------------------------------------------------

/// A few runs that have all there is. Returns what was wrong.
int run_a_few(int graphs) {
  int wrong = 0;
  for_random_graphs(graphs, {.max_tasks = 40, .gate_probability = 1, .exchange_probability = 0.3},
                    [&](const task::TaskGraph& graph, uint64_t seed) {
                      wrong += DeviceRun(graph, {.seed = seed, .profiles = true}).mismatches();
                    });
  return wrong;
}

std::set<std::string> all_operations() {
  std::set<std::string> found;
  host::found_operations = &found;
  run_a_few(3);
  host::found_operations = nullptr;
  found.insert("copy complete");
  return found;
}

/// A run with the fault ends the process: 66 is ThreadSanitizer's code after a report, 3 a value that was wrong; a
/// frame, chunk or word that came too early may as well crash it, or make it wait for ever.
[[noreturn]] void run_with_fault(const std::string& operation, bool dropped) {
  std::signal(SIGALRM, [](int) { _exit(4); });
  alarm(kThreadSanitizer ? 60 : 6);
  host::weakened = operation;
  host::dropped = dropped;
  for (int round = 0; round < 8; ++round)
    if (run_a_few(4) != 0) _exit(3);
  std::exit(0);
}

bool was_found(int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }

TEST(DeviceFaults, AWaitThatIsNoneIsFound) {
  if (kThreadSanitizer) GTEST_SKIP() << "[SKIP] the weaker faults below are found here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_with_fault("none", true), testing::ExitedWithCode(0), "") << "without a fault";
  for (const std::string& operation : all_operations())
    if (operation.starts_with("wait ")) { EXPECT_EXIT(run_with_fault(operation, true), was_found, "") << operation; }
}

TEST(DeviceFaults, EveryOrderThatIsLostIsFound) {
  if (!kThreadSanitizer) GTEST_SKIP() << "[SKIP] needs a build with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::set<std::string> operations = all_operations();
  for (const char* orders_nothing : {"arrive ended", "wait ended"}) EXPECT_EQ(operations.erase(orders_nothing), 1u);
  // Brings a warp's threads together again before they leave.
  EXPECT_EQ(std::erase_if(operations, [](const auto& name) { return name.starts_with("warp_sync worker_run"); }), 1u);
  EXPECT_GE(operations.size(), 18u) << "of frames, ring, events, block and warps";
  for (const std::string& operation : operations)
    EXPECT_EXIT(run_with_fault(operation, false), testing::ExitedWithCode(66), "data race") << operation;
}

}  // namespace
}  // namespace megalith::runtime
