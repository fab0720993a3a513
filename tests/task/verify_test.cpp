// One test per kind of finding, with the words it comes in.
#include "megalith/task/verify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "megalith/task/json.h"
#include "small.h"

namespace megalith::test {
namespace {

using task::FindingKind;
using testing::Contains;

std::vector<std::string> messages(const task::TaskGraph& graph, FindingKind kind) {
  std::vector<std::string> list;
  for (const task::Finding& finding : task::verify(graph).findings)
    if (finding.kind == kind) list.push_back(finding.message);
  return list;
}
#define EXPECT_FINDING(graph, kind, message) EXPECT_THAT(messages(graph, FindingKind::kind), Contains(message))

// a writes x on worker 0; b reads x and writes y on worker 1; c reads y on worker 0 and is the gate.
task::TaskGraph relay() {
  Small s;
  const int x = s.buffer("x", 8), y = s.buffer("y", 8);
  s.task("a", {}, {s.part(x, 0, 8)});
  s.task("b", {s.part(x, 2, 8)}, {s.whole(y)});
  s.task("c", {s.whole(y)}, {});
  task::TaskGraph graph{.name = "relay", .tasks = s.tasks, .buffers = s.buffers};
  graph.buffers[0].bytes = graph.buffers[1].bytes = 32;
  graph.buffers[1].offset = 64;
  graph.arena_bytes = 128;
  graph.workers = {{0, 2}, {1}};
  graph.tasks[1].worker = 1;
  graph.tasks[0].worker = graph.tasks[2].worker = 0;
  graph.events = {{"a", 1}, {"b", 1}, {"c", 1}};
  graph.gate = 2;
  for (int t = 0; t < 3; ++t) graph.tasks[static_cast<size_t>(t)].signals = {t};
  graph.tasks[1].waits = {{0, 1, 0}};
  graph.tasks[2].waits = {{1, 1, 0}};
  return graph;
}

TEST(Verify, AcceptsASoundGraph) {
  const task::VerifyResult result = task::verify(relay());
  EXPECT_TRUE(result.ok()) << result.text();
  EXPECT_GT(result.num_orders_checked, 0);
  EXPECT_EQ(result.text(), "");
}

// Two tasks that scatter rows of the state x, on a worker each, then one that reads it and is the gate. `rows`: of the
// second.
task::TaskGraph scatter(int64_t begin, int64_t end) {
  Small s;
  const int x = s.buffer("x", 8, task::Memory::state);
  s.task("append[t=0:2]", {}, {s.rows(x, 0, 2)});
  s.tile("append[t=2:4]", {}, {s.rows(x, begin, end)});
  s.task("read", {s.part(x, 1, 3)}, {});
  task::TaskGraph graph{.name = "scatter", .tasks = s.tasks, .buffers = s.buffers};
  graph.buffers[0].bytes = 32;
  graph.workers = {{0, 2}, {1}};
  graph.tasks[1].worker = 1;
  graph.tasks[0].worker = graph.tasks[2].worker = 0;
  graph.events = {{"second", 1}, {"read", 1}};
  graph.gate = 1;
  graph.tasks[1].signals = {0};
  graph.tasks[2].signals = {1};
  graph.tasks[2].waits = {{0, 1, 0}};
  return graph;
}

TEST(Verify, RowsOfAScatterNeedNoOrder) {
  const task::VerifyResult result = task::verify(scatter(2, 4));
  EXPECT_TRUE(result.ok()) << result.text();
}

TEST(Verify, ARowThatTwoTasksScatterNeedsOne) {
  EXPECT_FINDING(scatter(1, 4), unordered,
                 "tasks \"append[t=0:2]\" and \"append[t=2:4]\" both touch buffer \"x\" [0:8] (write, then write) and "
                 "nothing orders them");
}

TEST(Verify, WhoReadsWhatIsScatteredWaitsForAllRows) {
  task::TaskGraph graph = scatter(2, 4);
  graph.tasks[2].waits.clear();
  EXPECT_FINDING(graph, unordered,
                 "tasks \"append[t=2:4]\" and \"read\" both touch buffer \"x\" [1:3] (write, then read) and nothing "
                 "orders them");
}

TEST(Verify, RowsAreToldApartWithinAnIterationAlone) {
  task::TaskGraph graph = scatter(2, 4);
  // Nobody reads it, and no gate holds up the first worker's next iteration.
  graph.tasks[2].reads.clear();
  graph.tasks[2].waits.clear();
  graph.gate.reset();
  EXPECT_FINDING(graph, unordered,
                 "tasks \"append[t=2:4]\" and, in the next iteration, \"append[t=0:2]\" both touch buffer \"x\" [0:8] "
                 "(write, then write) and nothing orders them");
}

TEST(Verify, RowsOfTwoNodesAreNotToldApart) {
  task::TaskGraph graph = scatter(2, 4);
  graph.tasks[1].node = 7;
  EXPECT_FINDING(graph, unordered,
                 "tasks \"append[t=0:2]\" and \"append[t=2:4]\" both touch buffer \"x\" [0:8] (write, then write) and "
                 "nothing orders them");
}

TEST(Verify, OnlyAStateIsScatteredInto) {
  task::TaskGraph graph = scatter(2, 4);
  graph.tasks[1].writes[0].row_begin = -1;
  EXPECT_FINDING(
      graph, structure,
      "task \"append[t=2:4]\" writes [0:8] of buffer \"x\" and scatters rows -1:4: want a write of a state, and "
      "rows from 0 on");
}

TEST(Verify, WriteThenReadUnordered) {
  task::TaskGraph graph = relay();
  graph.tasks[1].waits.clear();
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" and \"b\" both touch buffer \"x\" [2:8] (write, then read) and nothing orders them");
  const task::Finding finding = task::verify(graph).findings.at(0);
  EXPECT_EQ(finding.tasks, (std::vector<int>{0, 1}));
  EXPECT_EQ(finding.buffer, 0);
  EXPECT_EQ(task::verify(graph).text().substr(0, 20), "unordered: tasks \"a\"");
}

TEST(Verify, AcrossIterationsUnordered) {
  task::TaskGraph graph = relay();
  graph.gate.reset();
  EXPECT_TRUE(task::verify(graph).ok()) << "c waits for b, and the next a stands behind c";
  graph.tasks[2].waits.clear();
  EXPECT_FINDING(graph, unordered,
                 "tasks \"b\" and, in the next iteration, \"a\" both touch buffer \"x\" [2:8] (read, then write) and "
                 "nothing orders them");
}

TEST(Verify, OrderedTheWrongWayRound) {
  Small s;
  const int x = s.buffer("x");
  s.task("write", {}, {s.whole(x)});
  s.task("read", {s.whole(x)}, {});
  task::TaskGraph graph = s.plan(1);
  std::swap(graph.workers[0][0], graph.workers[0][1]);
  EXPECT_FINDING(
      graph, unordered,
      "tasks \"write\" and \"read\" both touch buffer \"x\" [0:16] (write, then read) but the graph runs the "
      "second before the first");
}

TEST(Verify, APartialCountOrdersNothing) {
  task::TaskGraph graph = relay();
  graph.tasks[2].signals = {0, 2};  // event "a" now has two arrivals, and b waits for one of them
  graph.events[0].arrivals = 2;
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" and \"b\" both touch buffer \"x\" [2:8] (write, then read) and nothing orders them");
}

TEST(Verify, LagPointsToTheIterationBefore) {
  task::TaskGraph graph = relay();
  graph.tasks[1].waits[0].lag = 1;
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" and \"b\" both touch buffer \"x\" [2:8] (write, then read) and nothing orders them");
}

TEST(Verify, Deadlock) {
  task::TaskGraph graph = relay();
  graph.tasks[0].waits = {{1, 1, 0}};
  EXPECT_FINDING(
      graph, deadlock,
      "task \"a\" on worker 0 waits for event \"b\" (0 of 1 signals), which task \"b\" signals; task \"b\" on "
      "worker 1 waits for event \"a\" (0 of 1 signals), which task \"a\" signals");
}

TEST(Verify, DeadlockThroughAList) {
  task::TaskGraph graph = relay();
  graph.workers[0] = {2, 0};
  EXPECT_FINDING(
      graph, deadlock,
      "task \"c\" on worker 0 waits for event \"b\" (0 of 1 signals), which task \"b\" signals; task \"b\" on "
      "worker 1 waits for event \"a\" (0 of 1 signals), which task \"a\" signals after task \"c\" in the list "
      "of worker 0");
}

TEST(Verify, WaitingForOneself) {
  task::TaskGraph graph = relay();
  graph.tasks[0].waits = {{0, 1, 0}};
  EXPECT_FINDING(graph, deadlock,
                 "task \"a\" on worker 0 waits for event \"a\" (0 of 1 signals), which task \"a\" signals");
}

// Two signallers on two workers, a waiter on a third, and nothing holds the fast one back.
TEST(Verify, Overrun) {
  Small s;
  const int x = s.buffer("x", 2, task::Memory::state);
  s.task("fast", {}, {});
  s.task("slow", {}, {s.part(x, 1, 2)});
  s.task("join", {s.part(x, 1, 2)}, {});
  task::TaskGraph graph{.name = "overrun", .tasks = s.tasks, .buffers = s.buffers};
  graph.buffers[0].bytes = 8;
  graph.workers = {{0}, {1}, {2}};
  graph.events = {{"both", 2}, {"read", 1}};
  for (int t = 0; t < 3; ++t) graph.tasks[static_cast<size_t>(t)].worker = t;
  graph.tasks[0].signals = graph.tasks[1].signals = {0};
  graph.tasks[2].waits = {{0, 2, 0}};
  graph.tasks[2].signals = {1};
  graph.tasks[1].waits = {{1, 1, 1}};
  EXPECT_FINDING(
      graph, overrun,
      "event \"both\" may count the next iteration's signal of task \"fast\" in place of this iteration's of "
      "task \"slow\", so that task \"join\" goes on too early");
  graph.tasks[0].waits = {{1, 1, 1}};
  EXPECT_TRUE(task::verify(graph).ok()) << task::verify(graph).text();
}

TEST(Verify, SharedBytesUnordered) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  s.task("a", {}, {s.whole(x)});
  s.task("b", {}, {s.whole(y)});
  task::TaskGraph graph = s.plan(2);
  ASSERT_TRUE(task::verify(graph).ok());
  graph.buffers[1].offset = graph.buffers[0].offset;
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" (buffer \"x\") and \"b\" (buffer \"y\") touch the same bytes of the arena [0:64] and "
                 "nothing orders them");
}

TEST(Verify, SharedBytesThatOneTaskReadsTwice) {
  task::TaskGraph graph = relay();
  for (const char* name : {"v", "w"}) {
    task::Buffer view = graph.buffers[0];
    view.name = name;
    graph.buffers.push_back(view);
    task::Region region = graph.tasks[1].reads[0];
    region.buffer = static_cast<int>(graph.buffers.size()) - 1;
    graph.tasks[1].reads.push_back(region);
  }
  EXPECT_TRUE(task::verify(graph).ok()) << task::verify(graph).text();
  graph.tasks[1].waits.clear();
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" (buffer \"x\") and \"b\" (buffer \"v\") touch the same bytes of the arena [0:32] and "
                 "nothing orders them");
}

TEST(Verify, SharedBytesAcrossIterations) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  s.task("a", {}, {s.whole(x)}, 1000);
  s.task("b", {}, {s.whole(y)}, 10);
  task::TaskGraph graph = s.plan(2);
  graph.events = {{"a", 1}};
  graph.tasks[0].signals = {0};
  graph.tasks[1].waits = {{0, 1, 0}};
  graph.buffers[1].offset = graph.buffers[0].offset;
  EXPECT_FINDING(
      graph, unordered,
      "tasks \"b\" (buffer \"y\") and, in the next iteration, \"a\" (buffer \"x\") touch the same bytes of the "
      "arena [0:64] and nothing orders them");
}

TEST(Verify, OneTaskInTwoBuffersAtTheSameBytes) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  s.task("a", {}, {s.whole(x)});
  s.task("b", {s.whole(x)}, {s.whole(y)});
  task::TaskGraph graph = s.plan(1);
  graph.buffers[1].offset = graph.buffers[0].offset;
  EXPECT_FINDING(graph, unordered, "task \"b\" touches buffers \"x\" and \"y\", which share bytes of the arena [0:64]");
}

// All on one worker, so everything is ordered; and yet b destroys what c reads.
TEST(Verify, Overwritten) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  s.task("a", {}, {s.whole(x)});
  s.task("b", {}, {s.whole(y)});
  s.task("c", {s.whole(x)}, {});
  task::TaskGraph graph = s.plan(1);
  graph.buffers[1].offset = graph.buffers[0].offset;
  EXPECT_FINDING(
      graph, overwritten,
      "task \"c\" reads buffer \"x\" [0:16] as task \"a\" wrote it, but task \"b\" wrote buffer \"y\", which "
      "shares its bytes, in between");
}

TEST(Verify, ConstantWritten) {
  task::TaskGraph graph = relay();
  graph.buffers[1].memory = task::Memory::constant;
  graph.buffers[1].offset = 0;
  EXPECT_FINDING(graph, constant_written, "task \"b\" writes [0:8] of buffer \"y\", which is constant");
}

TEST(Verify, Structure) {
  const auto change = [](auto&& edit) {
    task::TaskGraph graph = relay();
    edit(graph);
    return graph;
  };
  using Graph = task::TaskGraph;
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].name = ""; }), structure, "task 1 has no name");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].name = "a"; }), structure, "tasks 0 and 1 are both named \"a\"");
  EXPECT_FINDING(change([](Graph& g) { g.events[2].name = "b"; }), structure, "events 1 and 2 are both named \"b\"");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[1].name = "x"; }), structure, "buffers 0 and 1 are both named \"x\"");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[0].bytes = 33; }), structure,
                 "buffer \"x\" is f32 [8] and says it has 33 bytes, want 32");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[0].shape = {int64_t{1} << 61}; }), structure,
                 "buffer \"x\" is f32 [2305843009213693952] and says it has 32 bytes, want sizes from 0 whose product "
                 "fits 63 bits");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[0].offset = 4; }), structure,
                 "buffer \"x\" lies at offset 4, want a multiple of 64 from 0");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[1].offset = 128; }), structure,
                 "buffer \"y\" with 32 bytes at offset 128 ends outside the arena of 128 bytes");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[1].memory = task::Memory::state; }), structure,
                 "buffer \"y\" has memory of its own and offset 64, want 0");
  EXPECT_FINDING(change([](Graph& g) { g.arena_bytes = -1; }), structure, "the arena has -1 bytes");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[0].cost_ns = -2; }), structure,
                 "task \"a\" costs -2 ns, want a finite number from 0");
  EXPECT_FINDING(change([](Graph& g) {
                   g.tasks[0].tile = {{"n", 3, 2}};
                 }),
                 structure, "task \"a\" has the tile n=3:2, which ends before it begins");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].reads[0].buffer = 7; }), structure, "task \"b\" reads buffer 7 of 2");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].reads[0].box.hi = {9}; }), structure,
                 "task \"b\" reads [2:9] of buffer \"x\", whose shape is [8]");
  EXPECT_FINDING(change([](Graph& g) {
                   g.tasks[1].writes[0].box = {{0, 0}, {1, 1}};
                 }),
                 structure, "task \"b\" writes [0:1, 0:1] of buffer \"y\", whose shape is [8]");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].waits[0].event = -1; }), structure,
                 "task \"b\" waits for event -1 of 3");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].waits[0].count = 2; }), structure,
                 "task \"b\" waits for 2 signals of event \"a\", which gets 1");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].waits[0].count = 0; }), structure,
                 "task \"b\" waits for 0 signals of event \"a\", which gets 1");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].waits[0].lag = 2; }), structure,
                 "task \"b\" waits for event \"a\" with lag 2, want 0 or 1");
  EXPECT_FINDING(change([](Graph& g) {
                   g.tasks[1].signals = {1, 1};
                 }),
                 structure, "task \"b\" signals event \"b\" twice");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].signals = {3}; }), structure, "task \"b\" signals event 3 of 3");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].signals.clear(); }), structure,
                 "event \"b\" expects 1 signals an iteration, and 0 tasks signal it");
  EXPECT_FINDING(change([](Graph& g) {
                   g.events.push_back({"d", 0});
                 }),
                 structure, "event \"d\" is signalled by nobody");
  EXPECT_FINDING(change([](Graph& g) { g.workers.clear(); }), structure, "there are no workers");
  EXPECT_FINDING(change([](Graph& g) { g.workers[1] = {1, 5}; }), structure, "the list of worker 1 has task 5 of 3");
  EXPECT_FINDING(change([](Graph& g) {
                   g.workers[1] = {1, 0};
                 }),
                 structure, "task \"a\" is in the lists of workers 0 and 1, want one");
  EXPECT_FINDING(change([](Graph& g) { g.workers[1] = {}; }), structure, "task \"b\" is in no worker's list");
  EXPECT_FINDING(change([](Graph& g) { g.tasks[1].worker = 0; }), structure,
                 "task \"b\" is in the list of worker 1 but names worker 0");
  EXPECT_FINDING(change([](Graph& g) { g.gate = 3; }), structure, "the gate is event 3 of 3");
  EXPECT_FINDING(change([](Graph& g) { g.buffers[0].dtype = static_cast<DType>(99); }), structure,
                 "buffer \"x\" has an unknown dtype or memory");
}

// a and a2 write the two halves of an exchange on workers 0 and 1, b reads most of it on worker 2 and is the gate, so
// that nobody overwrites what it has not read. No event stands between.
task::TaskGraph handed_over() {
  Small s;
  const int words = s.buffer("words", 8, task::Memory::exchange);
  s.buffer("plain", 8, task::Memory::state);
  s.task("a", {}, {s.part(words, 0, 4)});
  s.tile("a2", {}, {s.part(words, 4, 8)});
  s.task("b", {s.part(words, 2, 8)}, {});
  task::TaskGraph graph{.name = "handed over", .tasks = s.tasks, .buffers = s.buffers};
  graph.buffers[0].bytes = 64;  // a word is twice its element
  graph.buffers[1].bytes = 32;
  graph.workers = {{0}, {1}, {2}};
  for (int t = 0; t < 3; ++t) graph.tasks[static_cast<size_t>(t)].worker = t;
  graph.events = {{"read", 1}};
  graph.tasks[2].signals = {0};
  graph.gate = 0;
  return graph;
}

TEST(VerifyExchange, AcceptsASoundGraph) {
  const task::VerifyResult result = task::verify(handed_over());
  EXPECT_TRUE(result.ok()) << result.text();
  EXPECT_GT(result.num_orders_checked, 0);
}

TEST(VerifyExchange, WhatNobodyWritesNeverComes) {
  task::TaskGraph graph = handed_over();
  graph.tasks[0].writes[0].box.hi = {3};
  EXPECT_FINDING(graph, deadlock,
                 "task \"b\" waits for [2:8] of the exchange \"words\", part of which no task before it writes");
  graph.tasks[0].writes.clear();
  graph.tasks[1].writes.clear();
  EXPECT_FINDING(graph, deadlock,
                 "task \"b\" waits for [2:8] of the exchange \"words\", part of which no task before it writes");
}

// It would run, but not as the program says: there the read comes first.
TEST(VerifyExchange, AReadBeforeTheWriteInTheProgram) {
  task::TaskGraph graph = handed_over();
  std::swap(graph.tasks[1], graph.tasks[2]);
  graph.tasks[1].worker = 1, graph.tasks[2].worker = 2;
  EXPECT_FINDING(graph, deadlock,
                 "task \"b\" waits for [2:8] of the exchange \"words\", part of which no task before it writes");
}

TEST(VerifyExchange, DeadlockThroughAList) {
  task::TaskGraph graph = handed_over();
  graph.workers = {{2, 0}, {1}, {}};
  graph.tasks[2].worker = 0;
  EXPECT_FINDING(graph, deadlock,
                 "task \"b\" on worker 0 waits for the exchange \"words\", which task \"a\" writes after task \"b\" in "
                 "the list of worker 0");
}

TEST(VerifyExchange, DeadlockWithAnEvent) {
  task::TaskGraph graph = handed_over();
  graph.tasks[0].waits = {{0, 1, 0}};
  EXPECT_FINDING(graph, deadlock,
                 "task \"b\" on worker 2 waits for the exchange \"words\", which task \"a\" writes; task \"a\" on "
                 "worker 0 waits for event \"read\" (0 of 1 signals), which task \"b\" signals");
}

TEST(VerifyExchange, OneWriterAnElement) {
  task::TaskGraph graph = handed_over();
  graph.tasks[1].writes[0].box.lo = {3};
  EXPECT_FINDING(graph, structure,
                 "task \"a2\" writes [3:8] of the exchange \"words\", part of which another has written");
  graph.workers = {{0, 1}, {}, {2}};
  graph.tasks[1].worker = 0;
  EXPECT_FINDING(graph, structure,
                 "task \"a2\" writes [3:8] of the exchange \"words\", part of which another has written");
}

TEST(VerifyExchange, TheNextIterationsWriteMustWaitForTheRead) {
  task::TaskGraph graph = handed_over();
  graph.gate.reset();
  EXPECT_FINDING(
      graph, unordered,
      "tasks \"b\" and, in the next iteration, \"a\" both touch buffer \"words\" [2:4] (read, then write) and "
      "nothing orders them");
  EXPECT_FINDING(graph, unordered,
                 "tasks \"b\" and, in the next iteration, \"a2\" both touch buffer \"words\" [4:8] (read, then write) "
                 "and nothing orders them");
  graph.tasks[0].waits = graph.tasks[1].waits = {{0, 1, 1}};
  EXPECT_TRUE(task::verify(graph).ok()) << task::verify(graph).text();
}

// Seeing a word says that the word is there, and nothing of what its writer did beside.
TEST(VerifyExchange, OrdersNothingElse) {
  task::TaskGraph graph = handed_over();
  graph.tasks[0].writes.push_back({1, {{0}, {8}}});
  graph.tasks[2].reads.push_back({1, {{5}, {8}}});
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" and \"b\" both touch buffer \"plain\" [5:8] (write, then read) and nothing orders them");
  graph.events.push_back({"written", 1});
  graph.tasks[0].signals = {1};
  graph.tasks[2].waits = {{1, 1, 0}};
  EXPECT_TRUE(task::verify(graph).ok()) << task::verify(graph).text();
}

// Nor is a chain of words an order: a writes what c reads, and b hands on between them.
TEST(VerifyExchange, OrdersNothingElseThroughAChain) {
  task::TaskGraph graph = handed_over();
  graph.tasks[0].writes.push_back({1, {{0}, {8}}});
  graph.tasks.push_back({.name = "c", .node = 2, .reads = {{1, {{0}, {1}}}}, .worker = 2});
  graph.workers[2] = {2, 3};
  EXPECT_FINDING(graph, unordered,
                 "tasks \"a\" and \"c\" both touch buffer \"plain\" [0:1] (write, then read) and nothing orders them");
}

TEST(VerifyExchange, BytesAreThoseOfWords) {
  task::TaskGraph graph = handed_over();
  graph.buffers[0].bytes = 32;
  EXPECT_FINDING(graph, structure, "buffer \"words\" is f32 [8] and says it has 32 bytes, want 64");
  graph = handed_over();
  graph.buffers[0].offset = 64;
  EXPECT_FINDING(graph, structure, "buffer \"words\" has memory of its own and offset 64, want 0");
}

// Boxes whose cuts would make too many cells are compared pair by pair; the answer is the same.
TEST(Verify, RaggedBoxes) {
  constexpr int64_t kSize = 4000;
  Small s;
  s.buffers.push_back({.name = "x", .dtype = DType::f32, .shape = {kSize, kSize}, .memory = task::Memory::state});
  auto box = [&](int64_t i) { return task::Region{0, {{i, i}, {i + 1, i + 1}}}; };
  for (int64_t i = 0; i < 2200; ++i) s.task(fmt::format("diagonal[n={}:{}]", i, i + 1), {}, {box(i)}, 10);
  task::TaskGraph graph = s.plan(2);
  ASSERT_TRUE(graph.events.empty());
  graph.tasks.back().reads.push_back(box(2198));
  EXPECT_FINDING(graph, unordered,
                 "tasks \"diagonal[n=2198:2199]\" and \"diagonal[n=2199:2200]\" both touch buffer \"x\" [2198:2199, "
                 "2198:2199] (write, then read) and nothing orders them");
}

TEST(Verify, SaysOnlyTheFirstFew) {
  Small s;
  const int x = s.buffer("x");
  for (int i = 0; i < 50; ++i) s.task("t" + std::to_string(i), {}, {s.whole(x)});
  task::TaskGraph graph = s.plan(4);
  for (task::Task& task : graph.tasks) task.waits.clear();
  const size_t found = task::verify(graph).findings.size();
  EXPECT_GT(found, 10u);
  EXPECT_LE(found, 20u);
}

}  // namespace
}  // namespace megalith::test
