// Edited tasks, as a dump of this graph or of another one. Taken unseen, one of another ran past its tables, or gave
// another text.
#include "megalith/jit/compile.h"

#include <gmock/gmock.h>

#include "base/temporary_folder.h"
#include "megalith/base/file.h"
#include "megalith/ops/registry.h"
#include "megalith/task/json.h"

namespace megalith::jit {
namespace {

using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

graph::Graph sum_graph(int64_t columns, DType dtype = DType::f32) {
  graph::Graph graph(ops::builtin(), "sum");
  const auto x = graph.state("x", dtype, {8, columns}), y = graph.state("y", dtype, {8, columns});
  graph.add("add", "add", {y, x}, {.outputs = {{"y", y}}});
  return graph;
}

// The same, and an iteration that ends with its second node.
graph::Graph gated_graph() {
  graph::Graph graph = sum_graph(64);
  const auto stop = graph.state("stop", DType::i32, {1});
  graph.add("count_up", "count", {stop}, {});
  graph.set_gate("count", stop);
  return graph;
}

class TasksOverride : public ::testing::Test {
 protected:
  task::TaskGraph plan(const graph::Graph& graph, int num_workers = 2, const std::string& target = "cpu") {
    return compile(graph, {.target = target, .num_workers = num_workers, .plan_only = true, .pipeline = {}}).tasks;
  }
  // With what `tasks` are, edited, in the place of those of `graph` for two workers.
  task::TaskGraph compile_with(const task::TaskGraph& tasks, const graph::Graph& graph = sum_graph(64),
                               const std::string& target = "cpu") {
    file_write_atomic(folder / "tasks.json", task::to_json(tasks));
    return compile(
               graph,
               {.target = target, .num_workers = 2, .plan_only = true, .pipeline = {.override_directory = folder.path}})
        .tasks;
  }
  std::string error_of(const task::TaskGraph& tasks, const graph::Graph& graph = sum_graph(64)) {
    return message_of<UserError>([&] { compile_with(tasks, graph); });
  }
  TemporaryFolder folder;
};

TEST_F(TasksOverride, OfTheSameGraphAreTaken) {
  task::TaskGraph tasks = plan(sum_graph(64));
  ASSERT_GE(tasks.tasks.size(), 2u);
  tasks.tasks[0].name = "mine";
  EXPECT_EQ(compile_with(tasks).tasks[0].name, "mine");
}

TEST_F(TasksOverride, AsTheyWereDumpedAreTaken) {
  for (const std::string target : {"cpu", "cuda:sm_90a"})
    for (const graph::Graph& graph : {sum_graph(64), gated_graph()}) {
      const task::TaskGraph tasks = plan(graph, 2, target);
      EXPECT_EQ(task::to_json(compile_with(tasks, graph, target)), task::to_json(tasks)) << target;
    }
}

TEST_F(TasksOverride, OfAnotherGateAreRefused) {
  const graph::Graph gated = gated_graph();
  task::TaskGraph tasks = plan(gated);
  ASSERT_TRUE(tasks.gate);
  tasks.gate.reset();
  EXPECT_THAT(error_of(tasks, gated), HasSubstr("they have no gate, and the graph has the node \"count\""));

  tasks = plan(gated);
  task::Task& other = tasks.tasks[0];
  ASSERT_EQ(other.node, 0);
  other.signals = {*tasks.gate};
  EXPECT_THAT(error_of(tasks, gated),
              HasSubstr("task \"" + other.name + "\" signals the gate, want only tasks of node \"count\""));

  tasks = plan(sum_graph(64));
  tasks.gate = 0;
  EXPECT_THAT(error_of(tasks), HasSubstr("they have a gate, and the graph has no node that ends an iteration"));
}

TEST_F(TasksOverride, OfOtherWorkersAreRefused) {
  EXPECT_EQ(error_of(plan(sum_graph(64), 3)),
            "[jit] the override " + (folder / "tasks.json") +
                " of stage \"partition\" is wrong: the tasks are of another graph, or of other options: they are for 3 "
                "workers, want 2; dump them again");
}

TEST_F(TasksOverride, OfOtherTensorsAreRefused) {
  EXPECT_THAT(error_of(plan(sum_graph(32))),
              HasSubstr("buffer 0 is \"x\" f32 [8, 32] (state) of 1024 bytes, want \"x\" f32 [8, 64] (state) of 2048"));
  EXPECT_THAT(error_of(plan(sum_graph(64, DType::bf16))), HasSubstr("want \"x\" f32 [8, 64]"));
  task::TaskGraph tasks = plan(sum_graph(64));
  tasks.buffers.emplace_back(tasks.buffers[0]).name = "z";
  EXPECT_THAT(error_of(tasks), HasSubstr("there are 3 buffers, and the graph has 2 tensors"));
  tasks.buffers.pop_back();
  tasks.buffers[0].memory = task::Memory::constant;
  EXPECT_THAT(error_of(tasks), HasSubstr("buffer 0 is \"x\" f32 [8, 64] (constant)"));
}

TEST_F(TasksOverride, OfOtherNodesAndTilesAreRefused) {
  const task::TaskGraph tasks = plan(sum_graph(64));
  const auto with = [&](auto&& edit) {
    task::TaskGraph edited = tasks;
    edit(edited.tasks[0]);
    return error_of(edited);
  };
  ASSERT_FALSE(tasks.tasks[0].tile.empty());
  EXPECT_THAT(with([](task::Task& task) { task.node = 1; }), HasSubstr("belongs to node 1, want 0 to 0"));
  EXPECT_THAT(with([](task::Task& task) { task.tile.clear(); }), HasSubstr("has 0 ranges, want 2 ("));
  EXPECT_THAT(with([](task::Task& task) { task.tile[0].iname = "other"; }), HasSubstr("has the range other=0:"));
  EXPECT_THAT(with([](task::Task& task) { task.tile[0].end = 9999; }),
              AllOf(HasSubstr("=0:9999, want "), HasSubstr("within 0:")));
  EXPECT_THAT(with([](task::Task& task) { task.tile[0].end -= 1; }), HasSubstr("the tiles of node \"add\" have "));
}

}  // namespace
}  // namespace megalith::jit
