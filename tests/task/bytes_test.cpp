// A task graph as bytes and back, and what becomes of bytes that are none.
#include "megalith/task/bytes.h"

#include <gmock/gmock.h>

#include <random>

#include "megalith/base/error.h"
#include "megalith/task/json.h"
#include "task/small.h"

namespace megalith::task {
namespace {

/// A graph of more tasks than stand together, each with something of everything.
TaskGraph large() {
  TaskGraph graph;
  graph.name = "large";
  graph.buffers = {{.name = "x", .dtype = DType::bf16, .shape = {300, 7}, .memory = Memory::state, .bytes = 4200}};
  graph.events = {{.name = "done", .arrivals = 5000}};
  graph.workers.resize(3);
  for (int t = 0; t < 5000; ++t) {
    graph.tasks.push_back({.name = "task " + std::to_string(t),
                           .node = t % 9,
                           .tile = {{"n", t, t + 1}},
                           .reads = {{0, {{t % 300, 0}, {t % 300 + 1, 7}}}, {0, {{1, 2}, {3, 4}}}},
                           .writes = {{0, {{2, 0}, {t % 300 < 150 ? 3 : 4, 7}}, t % 7 - 1, t % 3, t % 3 * 300}},
                           .waits = {{0, 5000, 1}},
                           .signals = {0},
                           .worker = t % 3,
                           .cost_ns = t * 0.5});
    graph.workers[static_cast<size_t>(t % 3)].push_back(t);
  }
  graph.arena_bytes = -1;
  graph.gate = 0;
  return graph;
}

TEST(Bytes, ComeBackAsTheSameGraph) {
  for (const size_t tasks : {0u, 1u, 1023u, 1024u, 1025u, 5000u}) {
    TaskGraph graph = large();
    graph.tasks.resize(tasks);
    const std::string bytes = to_bytes(graph);
    const TaskGraph read = from_bytes(bytes);
    EXPECT_EQ(to_bytes(read), bytes);
    EXPECT_EQ(to_json(read), to_json(graph)) << tasks << " tasks";
  }
}

TEST(Bytes, ThatAreTheSameInTheNextTaskAreShort) {
  TaskGraph graph = large();
  const size_t bytes = to_bytes(graph).size();
  for (Task& task : graph.tasks) task.reads.resize(1);
  const size_t without = to_bytes(graph).size();
  EXPECT_LT(bytes, without + graph.tasks.size() + 100);  // a byte for each of the second regions
}

TEST(Bytes, ThatEndTooEarlyOrTooLateAreNamed) {
  const std::string bytes = to_bytes(large());
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50)
    EXPECT_THROW(from_bytes(std::string_view(bytes).substr(0, size)), UserError) << size;
  EXPECT_THROW(from_bytes(bytes + '\0'), UserError);
}

TEST(Bytes, OfAnythingAreAGraphOrAnError) {
  const std::string bytes = to_bytes(large());
  std::mt19937_64 random(1);
  size_t num_errors = 0;
  for (int round = 0; round < 300; ++round) {
    std::string changed = bytes;
    for (int i = 0; i <= round % 4; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    try {
      from_bytes(changed);
    } catch (const UserError&) { ++num_errors; }
  }
  EXPECT_GT(num_errors, 0u);
}

}  // namespace
}  // namespace megalith::task
