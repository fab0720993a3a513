// Edited tasks, as a dump of this graph or of another one. Taken unseen, one of another ran past its tables, or gave
// another text.
#include "megalith/jit/compile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <functional>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/cache_entry.h"
#include "megalith/ops/registry.h"
#include "megalith/task/bytes.h"
#include "megalith/task/json.h"

namespace megalith::jit {
namespace {

using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// With one that counts iterations.
std::shared_ptr<const graph::Registry> operators() {
  auto registry = std::make_shared<graph::Registry>(*ops::builtin());
  registry->add(graph::operator_("count_up", "n = n + 1").inout("n", {"W"}, DType::i32).loops(R"(
    { [w] : 0 <= w < W }
    n[w] = n[w] + 1
  )"));
  return registry;
}

graph::Graph sum_graph(int64_t columns, DType dtype = DType::f32) {
  graph::Graph graph(operators(), "sum");
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
  EXPECT_THAT(with([](task::Task& task) { task.tile[0].end -= 1; }), HasSubstr("no task of node \"add\" does "));
}

// A tile that is there twice, in the place of another one, has as many points as there ought to be.
TEST_F(TasksOverride, WithATileTwiceAreRefused) {
  task::TaskGraph tasks = plan(sum_graph(64));
  ASSERT_EQ(tasks.tasks.size(), 2u);
  tasks.tasks[1].tile = tasks.tasks[0].tile;
  tasks.tasks[1].reads = tasks.tasks[0].reads;
  tasks.tasks[1].writes = tasks.tasks[0].writes;
  tasks.tasks[1].worker = tasks.tasks[0].worker;
  tasks.workers[static_cast<size_t>(tasks.tasks[0].worker)] = {0, 1};
  tasks.workers[static_cast<size_t>(1 - tasks.tasks[0].worker)] = {};
  EXPECT_THAT(error_of(tasks), HasSubstr("does what another task of node \"add\" does, too"));
}

// Weights are laid out in panels of rows; a task that began within one would read another's.
TEST_F(TasksOverride, ThatCutAPanelAreRefused) {
  graph::Graph graph(ops::builtin(), "product");
  const auto x = graph.state("x", DType::f32, {1, 64}), weight = graph.constant("weight", DType::bf16, {64, 64});
  graph.add("linear", "linear", {x, weight}, {.outputs = {{"y", graph.state("y", DType::f32, {1, 64})}}});
  task::TaskGraph tasks = plan(graph);
  ASSERT_EQ(tasks.tasks.size(), 2u);
  const auto n = std::ranges::find(tasks.tasks[0].tile, "n", &loop::Range::iname) - tasks.tasks[0].tile.begin();
  ASSERT_EQ(tasks.tasks[0].tile[n].end, 32);
  tasks.tasks[0].tile[n].end = tasks.tasks[1].tile[n].begin = 31;
  EXPECT_THAT(error_of(tasks, graph), HasSubstr("begins at n=31, between two of 16 that are laid out together"));
}

TEST_F(TasksOverride, InAnotherOrderThanTheNodesAreRefused) {
  graph::Graph graph = sum_graph(64);
  graph.add("copy", "copy", {graph.find("x")}, {.outputs = {{"y", graph.state("z", DType::f32, {8, 64})}}});
  task::TaskGraph tasks = plan(graph);
  ASSERT_EQ(tasks.tasks.front().node, 0);
  ASSERT_EQ(tasks.tasks.back().node, 1);
  std::swap(tasks.tasks.front(), tasks.tasks.back());
  EXPECT_THAT(error_of(tasks, graph), HasSubstr("of node 0 stands behind one of node 1, want the nodes' order"));
}

// The verifier believes what tasks say of themselves: with smaller regions it proves what is not so.
TEST_F(TasksOverride, ThatTouchMoreOrLessThanTheySayAreRefused) {
  const task::TaskGraph tasks = plan(sum_graph(64));
  const auto with = [&](auto&& edit) {
    task::TaskGraph edited = tasks;
    edit(edited.tasks[0]);
    return error_of(edited);
  };
  const std::string name = "task \"" + tasks.tasks[0].name + "\" ";
  EXPECT_THAT(with([](task::Task& task) { task.reads.pop_back(); }),
              AllOf(HasSubstr(name + "reads \"y\" ["), HasSubstr(", and they do not say so")));
  EXPECT_THAT(with([](task::Task& task) { task.writes.clear(); }), HasSubstr(name + "writes \"y\" ["));
  EXPECT_THAT(with([](task::Task& task) { task.writes[0].box.hi[1] -= 1; }), HasSubstr(name + "writes \"y\" ["));
  EXPECT_THAT(with([](task::Task& task) {
                task.reads.push_back(task.reads[0]);
                task.reads.back().box.hi[0] = 1;
              }),
              AllOf(HasSubstr("they say that " + name + "reads"), HasSubstr("which is not what it touches")));
}

// A projection whose weights a GPU streams: of few rows, in parts and turns where `columns` are many; or of many rows.
graph::Graph projection(int64_t rows, int64_t columns, int64_t rows_of_weights = 320) {
  graph::Graph graph(ops::builtin(), "projection");
  const auto x = graph.activation("x", DType::bf16, {rows, columns});
  graph.add("copy", "in", {graph.state("given", DType::bf16, {rows, columns})}, {.outputs = {{"y", x}}});
  const auto weight = [&](const char* name) { return graph.constant(name, DType::bf16, {rows_of_weights, columns}); };
  if (rows > 8)
    graph.add("linear", "projected", {x, weight("w")}, {.dtypes = {{"y", DType::bf16}}});
  else
    graph.add("rmsnorm_gate_up", "projected",
              {x, graph.constant("norm", DType::bf16, {columns}), weight("gate"), weight("up")},
              {.dtypes = {{"y", DType::bf16}}});
  return graph;
}

// The verifier proves streams; that they are those which bodies take, nobody but the graph says.
TEST_F(TasksOverride, WhoseStreamsAreEditedAreRefused) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{2, 4096}, {64, 4096}}) {
    const graph::Graph graph = projection(rows, columns);
    const task::TaskGraph tasks = plan(graph, 2, "cuda:sm_90a");
    ASSERT_EQ(tasks.streams.size(), 1u);
    EXPECT_EQ(task::to_json(compile_with(tasks, graph, "cuda:sm_90a")), task::to_json(tasks));
    const auto error_with = [&](const std::function<void(task::TaskGraph&)>& edit) {
      task::TaskGraph edited = tasks;
      edit(edited);
      return message_of<UserError>([&] { compile_with(edited, graph, "cuda:sm_90a"); });
    };
    const std::string other = "they stream weights of node \"projected\" as \"";
    EXPECT_THAT(error_with([](task::TaskGraph& g) { g.streams[0].order.turn += g.streams[0].order.turn > 1 ? -1 : 1; }),
                HasSubstr(other));
    EXPECT_THAT(error_with([](task::TaskGraph& g) {
                  g.streams.clear();
                  for (task::Task& task : g.tasks) task.stream.reset();
                }),
                HasSubstr("they stream no weights of node \"projected\", whose body takes \""));
    if (rows <= 8) {
      EXPECT_THAT(error_with([](task::TaskGraph& g) { std::swap(g.streams[0].matrices[0], g.streams[0].matrices[1]); }),
                  AllOf(HasSubstr(other + "up\", \"gate\" with "), HasSubstr("its body takes \"gate\", \"up\" with ")));
      EXPECT_THAT(error_with([](task::TaskGraph& g) { g.streams[0].order.part -= 1; }), HasSubstr(other));
    }
    for (size_t t = 0; t < tasks.tasks.size(); ++t) {
      if (!tasks.tasks[t].stream) continue;
      for (int64_t task::StreamPart::*value : {&task::StreamPart::row_begin, &task::StreamPart::row_end,
                                               &task::StreamPart::column_chunk, &task::StreamPart::first_chunk})
        EXPECT_THAT(error_with([&](task::TaskGraph& g) { *g.tasks[t].stream.*value += 1; }),
                    HasSubstr("the task graph is not sound: task \"" + tasks.tasks[t].name + "\""));
    }
  }
}

// Bodies have it as a constant; which is checked against what they know of their layout when they are compiled.
TEST_F(TasksOverride, TheOrderOfAStreamIsInTheSource) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{2, 4096}, {64, 512}}) {
    const CompiledKernel kernel =
        compile(projection(rows, columns, 24000),
                {.target = "cuda:sm_90a", .num_workers = 2, .plan_only = true, .pipeline = {}});
    const stream::Order& order = kernel.tasks.streams.at(0).order;
    EXPECT_THAT(kernel.source, HasSubstr(fmt::format(
                                   "  static constexpr stream::Order kStream = {{.slices = {}, .group = {}, .chunks = "
                                   "{}, .part = {}, .turn = {}, .partners = false}};\n",
                                   order.slices, order.group, order.chunks, order.part, order.turn)));
  }
}

// How long the ring of an architecture is decides whether groups go to N-parallel warpgroups.
TEST_F(TasksOverride, WhoseStreamsAreThoseOfAnotherGpuAreRefused) {
  const graph::Graph graph = projection(64, 512, 24000);
  const task::TaskGraph large = plan(graph, 2, "cuda:sm_90a"), small = plan(graph, 2, "cuda:sm_80");
  EXPECT_EQ(large.streams.at(0).order.turn, 4);
  EXPECT_EQ(small.streams.at(0).order.turn, 1);
  EXPECT_THAT(message_of<UserError>([&] { compile_with(large, graph, "cuda:sm_80"); }),
              AllOf(HasSubstr("turns of 4, and its body takes "), HasSubstr("turns of 1")));
}

// ---- plans in the cache ------------------------------------------------------------------------------

class BodiesOverride : public ::testing::Test {
 protected:
  std::string source_with(const std::string& bodies, const std::string& target) {
    if (!bodies.empty()) file_write_atomic(folder / "bodies.txt", bodies);
    return compile(sum_graph(64), {.target = target,
                                   .num_workers = 2,
                                   .plan_only = true,
                                   .pipeline = {.dump_directory = folder / "dump",
                                                .override_directory = bodies.empty() ? "" : folder.path}})
        .source;
  }
  TemporaryFolder folder;
};

TEST_F(BodiesOverride, ChangesTheSource) {
  for (const std::string target : {"cpu", "cuda:sm_90a"}) {
    const std::string proposed = source_with("", target), dumped = file_read(folder / "dump/sum/bodies.txt");
    EXPECT_THAT(dumped, HasSubstr("\nbody add_0\n"));
    EXPECT_EQ(source_with(dumped, target), proposed);
    // All threads in step, and plain loops.
    const std::string plain = source_with("body add_0\n", target);
    EXPECT_NE(plain, proposed);
    EXPECT_THAT(plain.substr(plain.find("---- add_0")),
                Not(AnyOf(HasSubstr("+= kThreads"), HasSubstr("MEGALITH_INDEPENDENT"))));
  }
}

TEST_F(BodiesOverride, ThatIsIllegalIsRefused) {
  EXPECT_THAT(
      message_of<UserError>([&] { source_with("# mine\nbody add_0\ntag h g.0\n", "cpu"); }),
      AllOf(
          HasSubstr("bodies.txt of stage \"distribute\" is wrong: line 3: [add] the loop over h cannot be tagged g.0"),
          HasSubstr("it can be for, unr or vec")));
  EXPECT_THAT(message_of<UserError>([&] { source_with("body sub_0\n", "cpu"); }),
              HasSubstr("does not parse: line 1: there is no body \"sub_0\""));
}

class PlanInCache : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  megalith::test::EnvironmentVariable cache{"MEGALITH_CACHE_DIR", folder / "cache"};
  megalith::test::EnvironmentVariable always{"MEGALITH_ALWAYS_COMPILE", nullptr};

  CompiledKernel plan(std::string* said = nullptr) {
    ::testing::internal::CaptureStderr();
    CompiledKernel kernel = compile(sum_graph(64), {.num_workers = 2, .plan_only = true, .pipeline = {}});
    const std::string text = ::testing::internal::GetCapturedStderr();
    if (said) *said = text;
    return kernel;
  }
  // The only entry, with another content in one of its files; whole as far as hashes go.
  void replace(const std::string& file, const std::string& content) {
    const std::string key = KernelCache(folder / "cache", 1 << 30).list().at(0).key;
    const std::string entry = folder / "cache/kernels/" + key;
    file_write_atomic(entry + "/" + file, content);
    std::filesystem::remove(entry + "/info.json");
    entry_seal(entry, key, "sum");
  }
  static bool is_from_cache(const CompiledKernel& kernel) {
    return kernel.report.stages.back().from == StageFrom::cache;
  }
};

TEST_F(PlanInCache, IsFound) {
  EXPECT_FALSE(is_from_cache(plan()));
  EXPECT_TRUE(is_from_cache(plan()));
}

TEST_F(PlanInCache, OfAnotherGraphIsMadeAgain) {
  plan();
  replace("identity.txt", "another graph with the same hash");
  std::string said;
  EXPECT_FALSE(is_from_cache(plan(&said)));
  EXPECT_THAT(said, HasSubstr("is of another graph; it is made again"));
  EXPECT_TRUE(is_from_cache(plan()));
}

TEST_F(PlanInCache, ThatIsNoneIsMadeAgain) {
  const task::TaskGraph tasks = plan().tasks;
  task::TaskGraph unsound = tasks, other = tasks;
  for (task::Task& task : unsound.tasks) task.waits = {{0, 1 << 30, 0}};
  other.buffers[0].shape = {1};
  for (const std::string& bytes :
       {std::string("nonsense"), std::string(), task::to_bytes(unsound), task::to_bytes(other)}) {
    replace("tasks.bin", bytes);
    std::string said;
    const CompiledKernel again = plan(&said);
    EXPECT_FALSE(is_from_cache(again));
    EXPECT_THAT(said, HasSubstr("the plan of sum in the cache is of no use"));
    EXPECT_EQ(task::to_bytes(again.tasks), task::to_bytes(tasks));
    EXPECT_TRUE(is_from_cache(plan()));
  }
}

// Names of tensors are what a model's files say; the plan of one graph must not be found for another.
TEST_F(PlanInCache, OfGraphsWhoseNamesLookAlikeAreApart) {
  auto named = [](const std::string& name) {
    graph::Graph graph(ops::builtin(), "sum");
    const auto x = graph.state(name, DType::f32, {8, 64}), y = graph.state("y", DType::f32, {8, 64});
    graph.add("add", "add", {y, x}, {.outputs = {{"y", y}}});
    return compile(graph, {.num_workers = 2, .plan_only = true, .pipeline = {}});
  };
  EXPECT_FALSE(is_from_cache(named("x")));
  EXPECT_FALSE(is_from_cache(named("x\n")));
  EXPECT_FALSE(is_from_cache(named("x\\x0a")));
  EXPECT_TRUE(is_from_cache(named("x\n")));
}

// ---- what a kernel says of itself --------------------------------------------------------------------

TEST(KernelInfo, OfAKernelForOtherOperandsIsTheUsersError) {
  const TemporaryFolder folder;
  const auto compile_from = [&](const graph::Graph& graph, const std::string& dump, const std::string& edited) {
    compile(graph, {.num_workers = 2, .pipeline = {.dump_directory = dump, .override_directory = edited}});
  };
  const graph::Graph graph = sum_graph(64);
  compile_from(graph, folder.path, "");
  for (const std::string file : {"kernel.cpp", "kernel.so"}) {
    const TemporaryFolder edited;
    file_write_atomic(edited / file, file_read(folder / graph.name() + "/" + file));
    compile_from(graph, "", edited.path);
    for (const graph::Graph& other : {sum_graph(64, DType::bf16), sum_graph(128)})
      EXPECT_EQ(message_of<UserError>([&] { compile_from(other, "", edited.path); }),
                "[jit] the kernel that MEGALITH_OVERRIDE brings was written for other operands than this graph's: take "
                "one that was compiled with the same model and options")
          << file;
  }
}

TEST(KernelInfo, ThatWasEditedIsTheUsersError) {
  const TemporaryFolder folder;
  auto with_info = [&](const std::string& info) {
    file_write_atomic(folder / "kernel.cpp",
                      "extern \"C\" const char megalith_kernel_info[] = R\"json(" + info + ")json\";\n");
    return message_of<UserError>(
        [&] { compile(sum_graph(64), {.num_workers = 2, .pipeline = {.override_directory = folder.path}}); });
  };
  const std::string version = "{\"version\": \"" MEGALITH_VERSION "\"";
  EXPECT_THAT(with_info(version + ", "), HasSubstr("megalith_kernel_info is not what was written"));
  EXPECT_THAT(with_info(version + "}"), HasSubstr("key 'scratch_bytes' not found"));
  for (const char* value : {"-1", "1e30", "\"x\"", "1099511627777", "null", "[]"})
    EXPECT_THAT(with_info(version + ", \"scratch_bytes\": " + value + ", \"area_bytes\": 0, \"stream_rows\": 0}"),
                AllOf(HasSubstr("scratch_bytes"), HasSubstr("want 0 to")))
        << value;
}

// What a plan takes grows with the product of both, so that sizes of a hostile model must not choose it.
TEST(Plan, OfTooManyTasksForTooManyWorkersIsRefused) {
  graph::Graph graph(ops::builtin(), "long");
  graph::TensorId x = graph.state("x", DType::f32, {1024, 16});
  for (int i = 0; i < 260; ++i) x = graph.apply("copy", fmt::format("copy.{}", i), {x});
  graph.add("copy", "last", {x}, {.outputs = {{"y", graph.state("y", DType::f32, {1024, 16})}}});
  EXPECT_EQ(
      message_of<UserError>(
          [&] { compile(graph, {.target = "cpu", .num_workers = 1024, .plan_only = true, .pipeline = {}}); }),
      "\"long\" comes to 267264 tasks for 1024 workers, and a plan is made and proved for up to 268435456 of their "
      "products: use at most 1004 workers (-t), or a model with fewer layers");
}

}  // namespace
}  // namespace megalith::jit
