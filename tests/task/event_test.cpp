// The waits that come out of small graphs, exactly.
#include "megalith/task/event.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "model_like.h"
#include "small.h"

namespace megalith::test {
namespace {

// "b: a 1/1 | c: a 1/1, x 2/2 last" - per task with waits: event, count/arrivals, "last" for lag 1.
std::string waits(const task::TaskGraph& graph) {
  std::string text;
  for (const task::Task& task : graph.tasks) {
    if (task.waits.empty()) continue;
    if (!text.empty()) text += " | ";
    text += task.name + ":";
    for (const task::Wait& wait : task.waits) {
      const task::Event& event = graph.events[static_cast<size_t>(wait.event)];
      text += fmt::format("{} {} {}/{}{}", &wait == &task.waits[0] ? "" : ",", event.name, wait.count, event.arrivals,
                          wait.lag ? " last" : "");
    }
  }
  return text;
}

// Tasks go to workers in turn: the tests that need a certain worker give costs.
TEST(Event, AChainOnOneWorkerNeedsNone) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  s.task("a", {}, {s.whole(x)});
  s.task("b", {s.whole(x)}, {s.whole(y)});
  s.task("c", {s.whole(y)}, {});
  const task::TaskGraph graph = s.plan(1);
  EXPECT_EQ(waits(graph), "");
  EXPECT_TRUE(graph.events.empty());
}

// One producer, three consumers on three workers: one event with one signal.
TEST(Event, Fork) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  s.task("a", {}, {s.whole(x)});
  for (int64_t i = 0; i < 3; ++i) s.task("b" + std::to_string(i), {s.whole(x)}, {s.part(y, i, i + 1)});
  task::TaskGraph graph = s.plan(3);
  EXPECT_EQ(graph.tasks[0].worker, graph.tasks[1].worker);
  EXPECT_EQ(waits(graph), "a: b1 + b2 2/2 last | b1: a 1/1 | b2: a 1/1");
  EXPECT_EQ(graph.events.size(), 2u);
  // With b2 as the gate, the next a comes after all of them: b2 waits for every worker's first task, b1 among them.
  graph = s.plan(3, 3);
  EXPECT_EQ(graph.events[static_cast<size_t>(*graph.gate)].name, "b2");
  EXPECT_EQ(waits(graph), "b1: a 1/1 | b2: b1 1/1");
}

// Three producers on three workers, one consumer: one event; the producer on the consumer's worker does not signal.
TEST(Event, Join) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  for (int64_t i = 0; i < 3; ++i) s.task("a" + std::to_string(i), {}, {s.part(x, i, i + 1)});
  const int join = s.task("join", {s.whole(x)}, {s.whole(y)});
  const task::TaskGraph graph = s.plan(3, join);
  ASSERT_EQ(graph.events.size(), 2u);
  EXPECT_EQ(waits(graph), "join: a0 + a1 2/2") << "a2 runs where join runs";
}

// a -> (b, c) -> d, on two workers: two waits in all.
TEST(Event, Diamond) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y", 2), z = s.buffer("z");
  s.task("a", {}, {s.whole(x)});
  s.task("b", {s.whole(x)}, {s.part(y, 0, 1)});
  s.task("c", {s.whole(x)}, {s.part(y, 1, 2)});
  const int d = s.task("d", {s.whole(x), s.whole(y)}, {s.whole(z)});
  const task::TaskGraph graph = s.plan(2, d);
  EXPECT_EQ(waits(graph), "c: a 1/1 | d: b 1/1") << "d runs after c on its worker; a is implied by either";
}

// Without a gate the loop's hazards become waits on the iteration before.
TEST(Event, CarriedHazard) {
  Small s;
  const int x = s.buffer("x");
  s.task("write", {}, {s.whole(x)}, 100);
  s.task("read", {s.whole(x)}, {}, 100);
  task::TaskGraph graph = s.plan(1);
  EXPECT_EQ(waits(graph), "");
  s.tasks[1].reads.push_back(s.tasks[1].reads[0]);
  // Two readers: one must go to the other worker.
  s.task("read2", {s.whole(x)}, {}, 100);
  graph = s.plan(2);
  EXPECT_EQ(waits(graph), "write: read2 1/1 last | read2: write 1/1");
}

// State that is read and written in place by tiles which keep their workers needs nothing.
TEST(Event, StateInPlaceStaysOnItsWorker) {
  Small s;
  const int state = s.buffer("state", 8, task::Memory::state);
  for (int64_t i = 0; i < 4; ++i) {
    const task::Region tile = s.part(state, 2 * i, 2 * i + 2);
    i == 0 ? s.task("t0", {tile}, {tile}) : s.tile("t" + std::to_string(i), {tile}, {tile});
  }
  EXPECT_EQ(waits(s.plan(4)), "");
}

// W producers, W consumers that each read everything: one event, W signals, W waits - not W events.
TEST(Event, AllToAllIsOneEvent) {
  Small s;
  const int x = s.buffer("x", 8), y = s.buffer("y", 8), z = s.buffer("z");
  for (int64_t i = 0; i < 8; ++i) {
    const std::string name = fmt::format("a[n={}:{}]", i, i + 1);
    i == 0 ? s.task(name, {}, {s.part(x, i, i + 1)}) : s.tile(name, {}, {s.part(x, i, i + 1)});
  }
  for (int64_t i = 0; i < 8; ++i) {
    const std::string name = fmt::format("b[n={}:{}]", i, i + 1);
    i == 0 ? s.task(name, {s.whole(x)}, {s.part(y, i, i + 1)}) : s.tile(name, {s.whole(x)}, {s.part(y, i, i + 1)});
  }
  const int end = s.task("end", {s.whole(y)}, {s.whole(z)});
  const task::TaskGraph graph = s.plan(4, end);
  ASSERT_EQ(graph.events.size(), 3u);
  EXPECT_EQ(graph.events[0].name, "a");
  EXPECT_EQ(graph.events[0].arrivals, 4) << "the last task on each worker stands for the others";
  int waiters = 0;
  for (const task::Task& task : graph.tasks) waiters += !task.waits.empty();
  EXPECT_EQ(waiters, 4 + 1) << "the first b on each worker waits, and the end";
  EXPECT_EQ(graph.events[1].arrivals, 3) << "all but the end's own worker";
}

// A gate that the data does not connect to everybody is connected by waits: no worker may see the verdict late.
TEST(Event, TheGateComesAfterEveryWorkersFirstTask) {
  Small s;
  const int x = s.buffer("x", 3, task::Memory::state);
  s.task("a", {}, {s.part(x, 0, 1)});
  s.task("b", {}, {s.part(x, 1, 2)});
  const int gate = s.task("gate", {}, {s.part(x, 2, 3)}, 1);
  EXPECT_EQ(waits(s.plan(2, gate)), "gate: b 1/1");
}

TEST(Event, ALayerNeedsAboutOneWaitATask) {
  task::PlanReport report;
  ModelLike model(8, {.layers = 4});
  const task::TaskGraph graph = task::plan(model.tasks, model.buffers, model.options, &report);
  EXPECT_EQ(report.events.num_waits_carried, 0) << "the sampler is the gate and comes after everything";
  EXPECT_LT(report.events.num_waits, static_cast<int64_t>(graph.tasks.size()));
  EXPECT_LT(report.events.num_events, static_cast<int64_t>(graph.tasks.size()) / 2);
}

}  // namespace
}  // namespace megalith::test
