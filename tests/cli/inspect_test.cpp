// megalith compile, inspect and verify: what the compiler made, seen from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/command_run.h"
#include "megalith/task/flag_waits.h"
#include "megalith/task/json.h"
#include "megalith/task/stream_chunks.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

CommandResult inspect(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"inspect", kStoryteller, "-c", "256", "-t", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments);
}

const task::TaskGraph& tasks() {
  static const task::TaskGraph graph = task::from_json(inspect({"--stage", "tasks", "--json"}).out);
  return graph;
}

TEST(Compile, TellsStagesAndFindsItsKernelAgain) {
  const TemporaryFolder folder;
  const CommandInput input{.environment = {{"MEGALITH_CACHE_DIR", folder / "cache"}}};
  const std::vector<std::string> arguments = {"compile", kStoryteller, "-c", "256", "-o", folder / "out"};
  const CommandResult cold = megalith_command(arguments, input);
  ASSERT_EQ(cold.code, 0) << cold.err;
  EXPECT_THAT(cold.out, AllOf(HasSubstr("partition"), HasSubstr("planning"), HasSubstr(", verified\n"),
                              HasSubstr(", compiled\n")));
  for (const char* name :
       {"graph.txt", "plan.txt", "loops.txt", "bodies.txt", "tasks.json", "kernel.cpp", "kernel.so", "command.txt"})
    EXPECT_GT(read_text(folder / (std::string("out/") + name)).size(), 10u) << name;
  const auto report = nlohmann::json::parse(read_text(folder / "out/report.json"));
  EXPECT_EQ(report.at("cache_hit"), false);
  EXPECT_EQ(report.at("stages").size(), 7u);

  const CommandResult warm = megalith_command({"compile", kStoryteller, "-c", "256", "--json"}, input);
  EXPECT_EQ(nlohmann::json::parse(warm.out).at("cache_hit"), true) << warm.err;
}

TEST(Compile, PlansShapesWithoutWeights) {
  for (const char* shape : {"Qwen3-0.6B", "Llama-3.2-1B"}) {
    const CommandResult result = megalith_command({"compile", kShapes + shape, "--plan-only", "-t", "4", "-c", "512"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("for 4 workers, verified"), HasSubstr("planned only")));
  }
}

TEST(Inspect, OverviewTellsTheModel) {
  const CommandResult result = inspect({});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("model "), HasSubstr("Qwen3ForCausalLM"), HasSubstr("6.56 M"),
                                HasSubstr("waits"), HasSubstr("arena"), HasSubstr("--stage")));
}

TEST(Inspect, Graph) {
  const CommandResult text = inspect({"--stage", "graph"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("rmsnorm_linear"), HasSubstr("advance")));
  EXPECT_THAT(text.out, ContainsRegex("f32\\[rows<=(192|512), 256\\]")) << "512 where there is AMX";
  const auto json = nlohmann::json::parse(inspect({"--stage", "graph", "--json"}).out);
  EXPECT_EQ(json.at("nodes").front().at("operator"), "embedding");
  EXPECT_THAT(inspect({"--stage", "graph", "--dot"}).out, AllOf(StartsWith("digraph "), HasSubstr("n0 -> n")));
}

TEST(Inspect, LoopsSourceAndCost) {
  EXPECT_THAT(inspect({"--why"}).out, AllOf(HasSubstr("fuse_epilogue: "), HasSubstr("applied 0 times")));
  const CommandResult biases = megalith_command(
      {"inspect", MEGALITH_SOURCE_DIR "/models/shapes/Qwen2.5-0.5B", "--target", "cuda:sm_90a", "--why"});
  EXPECT_THAT(biases.out, AllOf(HasSubstr("applied 24 times"), HasSubstr("layer.23.qkv"),
                                HasSubstr("linear_rmsnorm_scale, row_bias")));
  EXPECT_EQ(inspect({"--why", "--stage", "graph"}).code, 2);
  EXPECT_THAT(inspect({"--stage", "plan"}).out,
              AllOf(StartsWith("# storyteller for cpu: "), HasSubstr("\nnode layer.0.q rmsnorm_linear gemv.h:"),
                    HasSubstr(".q_proj.weight panels\n")));
  EXPECT_EQ(nlohmann::json::parse(inspect({"--stage", "plan", "--json"}).out).at("target"), "cpu");
  EXPECT_THAT(inspect({"--stage", "loops"}).out, AllOf(HasSubstr("\nkernel rmsnorm_linear_0"), HasSubstr("body:")));
  EXPECT_FALSE(nlohmann::json::parse(inspect({"--stage", "loops", "--json"}).out).empty());
  EXPECT_THAT(inspect({"--stage", "bodies"}).out, HasSubstr("\nbody kv_append_0\n# {"));
  EXPECT_THAT(
      nlohmann::json::parse(inspect({"--stage", "bodies", "--json"}).out).at(0).at("schedule").get<std::string>(),
      HasSubstr("tag "));
  EXPECT_THAT(inspect({"--stage", "source"}).out, HasSubstr("megalith_worker"));

  EXPECT_THAT(inspect({"--stage", "cost"}).out, AllOf(HasSubstr("weights MB"), HasSubstr("\ntotal")));
  const auto cost = nlohmann::json::parse(inspect({"--stage", "cost", "--json"}).out);
  double weights = 0;
  for (const auto& row : cost.at("operators")) weights += row.at("weight_bytes").get<double>();
  // Every matrix once, in bf16; what is more are norms that several nodes read, rows of RoPE's tables and of the
  // embedding.
  EXPECT_NEAR(weights, 2 * 6558336.0, 50000);
}

TEST(Inspect, TasksAndPlacement) {
  EXPECT_THAT(inspect({"--stage", "tasks"}).out,
              AllOf(HasSubstr("on 2 workers"), HasSubstr("without reuse"), HasSubstr("operator")));
  EXPECT_THAT(inspect({"--stage", "tasks", "--dot"}).out, AllOf(StartsWith("digraph "), HasSubstr("cluster_1")));
  EXPECT_THAT(inspect({"--stage", "placement"}).out, HasSubstr("the busiest has"));
  // On a GPU small activations need no events; a CPU has no such thing.
  EXPECT_THAT(inspect({"--stage", "tasks", "--target", "cuda:sm_90a"}).out, HasSubstr(" exchanged ("));
  EXPECT_THAT(inspect({"--stage", "loops", "--target", "cuda:sm_90a"}).out,
              HasSubstr("body: mainloop/gemv.cuh: gemv_deferred_rmsnorm_linear\n"));
  EXPECT_THAT(inspect({"--stage", "tasks"}).out, Not(HasSubstr("exchanged")));
  const auto placement = nlohmann::json::parse(inspect({"--stage", "placement", "--json"}).out);
  EXPECT_EQ(placement.at("workers").size(), 2u);
}

// On a GPU most tasks wait for no event: for values that carry a flag. Who writes them, which, and for whom.
TEST(Inspect, WaitsForFlagsInData) {
  const auto on_gpu = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--target", "cuda:sm_90a"});
    return inspect(more);
  };
  const task::TaskGraph graph = task::from_json(on_gpu({"--stage", "tasks", "--json"}).out);
  const task::FlagWaits flags(graph);
  ASSERT_FALSE(flags.regions().empty());
  const task::FlaggedRegion& region = flags.regions()[1];
  const std::string reader = std::to_string(region.readers.at(0)), writer = std::to_string(region.writers.at(0));
  const std::string range = task::region_text(graph, region.buffer, region.box);
  const task::Task& of_writer = graph.tasks[static_cast<size_t>(region.writers[0])];

  const CommandResult text = on_gpu({"--task", reader});
  EXPECT_THAT(text.out, AllOf(HasSubstr("waits for flags of " + range + ", written by\n"),
                              HasSubstr(fmt::format("    {} {} (node {}, worker {}): ", writer, of_writer.name,
                                                    of_writer.node, of_writer.worker))));
  EXPECT_THAT(on_gpu({"--task", writer}).out, AllOf(HasSubstr("signals by flags in "),
                                                    HasSubstr(" what waits for " + range + "\n    " + reader + " ")));
  const auto json = nlohmann::json::parse(on_gpu({"--task", reader, "--json"}).out);
  bool is_there = false;
  for (const auto& wait : json.at("flag_waits"))
    is_there |= wait.at("buffer") == graph.buffers[static_cast<size_t>(region.buffer)].name &&
                wait.at("written_by") == region.writers;
  EXPECT_TRUE(is_there) << json.dump();
  EXPECT_FALSE(nlohmann::json::parse(on_gpu({"--task", writer, "--json"}).out).at("flag_signals").empty());

  const std::string& name = graph.buffers[static_cast<size_t>(region.buffer)].name;
  EXPECT_THAT(on_gpu({"--flags", name}).out,
              AllOf(StartsWith(fmt::format("tensor {}: {}, ", region.buffer, name)),
                    HasSubstr("each value with its flag"), HasSubstr("waited for, " + range + ", by\n")));
  const auto tensor = nlohmann::json::parse(on_gpu({"--flags", name, "--json"}).out);
  EXPECT_FALSE(tensor.at("written_by").empty());
  EXPECT_FALSE(tensor.at("waits").empty());
  EXPECT_GT(nlohmann::json::parse(on_gpu({"--flags", "all", "--json"}).out).size(), 5u);
  EXPECT_THAT(inspect({"--flags", "0"}).err, HasSubstr("carry no flags; none of this graph do"));
  EXPECT_THAT(on_gpu({"--stage", "tasks"}).out, HasSubstr("for flags in data, "));
  EXPECT_THAT(on_gpu({"--stage", "tasks", "--dot"}).out, HasSubstr("label=\"flags of\\n" + range));
}

// Which weights come through streams, in which order, and what a task takes from there.
TEST(Inspect, StreamsOfWeights) {
  const auto on_gpu = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--target", "cuda:sm_90a"});
    return inspect(more);
  };
  const task::TaskGraph graph = task::from_json(on_gpu({"--stage", "tasks", "--json"}).out);
  ASSERT_FALSE(graph.streams.empty());
  EXPECT_THAT(on_gpu({"--stage", "tasks"}).out,
              AllOf(HasSubstr(fmt::format("streams   {} nodes of weights, ", graph.streams.size())),
                    HasSubstr("rows of a chunk"), HasSubstr("2 x [768, 256]")));
  EXPECT_THAT(inspect({"--stage", "tasks"}).out, Not(HasSubstr("stream")));

  const auto task =
      std::ranges::find_if(graph.tasks, [](const task::Task& t) { return t.stream && t.stream->first_chunk > 0; });
  ASSERT_NE(task, graph.tasks.end());
  const task::StreamPart& part = *task->stream;
  EXPECT_THAT(on_gpu({"--task", task->name}).out,
              HasSubstr(fmt::format(
                  "takes rows {}:{} of {}", part.row_begin, part.row_end,
                  graph.buffers[static_cast<size_t>(find_stream(graph.streams, task->node)->matrices[0])].name)));
  const auto json = nlohmann::json::parse(on_gpu({"--task", task->name, "--json"}).out).at("stream");
  EXPECT_EQ(json.at("rows"), (std::vector<int64_t>{part.row_begin, part.row_end}));
  EXPECT_EQ(json.at("chunks").at(0), part.first_chunk);
  EXPECT_EQ(nlohmann::json::parse(inspect({"--task", "1", "--json"}).out).at("stream"), nullptr);
}

TEST(Inspect, OneTaskAndOneEvent) {
  ASSERT_FALSE(tasks().tasks.empty());
  const std::string name = tasks().tasks[1].name;
  const CommandResult by_name = inspect({"--task", name}), by_index = inspect({"--task", "1"});
  ASSERT_EQ(by_name.code, 0) << by_name.err;
  EXPECT_EQ(by_name.out, by_index.out);
  EXPECT_THAT(by_name.out, AllOf(StartsWith("task 1: " + name), HasSubstr("reads"), HasSubstr("writes")));
  EXPECT_EQ(nlohmann::json::parse(inspect({"--task", "1", "--json"}).out).at("name"), name);

  const CommandResult event = inspect({"--event", "0"});
  EXPECT_THAT(event.out, AllOf(StartsWith("event 0: " + tasks().events[0].name), HasSubstr("signalled by\n")));
  const auto every_task = nlohmann::json::parse(inspect({"--task", "all", "--json"}).out);
  ASSERT_EQ(every_task.size(), tasks().tasks.size());
  for (size_t t = 0; t < every_task.size(); ++t) EXPECT_EQ(every_task[t].at("name"), tasks().tasks[t].name);
  const auto every_event = nlohmann::json::parse(inspect({"--event", "all", "--json"}).out);
  ASSERT_EQ(every_event.size(), tasks().events.size());
  for (size_t e = 0; e < every_event.size(); ++e)
    EXPECT_EQ(every_event[e].at("signalled_by").size(), static_cast<size_t>(tasks().events[e].arrivals));
  EXPECT_THAT(inspect({"--task", "all"}).out, AllOf(StartsWith("task 0: "), HasSubstr("\n\ntask 1: " + name)));

  EXPECT_THAT(inspect({"--task", "nobody"}).err, StartsWith("megalith: error: there is no task \"nobody\""));
  EXPECT_THAT(inspect({"--task", "layer.0.q[n=0:128]"}).err, HasSubstr("\" (near: \"layer.0.q[n=0:128,"));
  EXPECT_THAT(inspect({"--task", "1000000"}).err,
              StartsWith("megalith: error: there is no task 1000000: the graph has"));
}

class Verify : public ::testing::Test {
 protected:
  CommandResult verify(const task::TaskGraph& graph, bool json = false) {
    write_text(folder_ / "tasks.json", task::to_json(graph));
    std::vector<std::string> arguments = {"verify", folder_ / "tasks.json"};
    if (json) arguments.push_back("--json");
    return megalith_command(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(Verify, TheCompilersGraphIsSound) {
  const CommandResult result = verify(tasks());
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              StartsWith(fmt::format("sound: {} tasks, {} events, ", tasks().tasks.size(), tasks().events.size())));
  EXPECT_EQ(megalith_command({"verify", "-"}, {.stdin_text = task::to_json(tasks())}).out, result.out);
  EXPECT_THAT(megalith_command({"inspect", folder_ / "tasks.json"}).out, HasSubstr("layer.*.q"));
}

TEST_F(Verify, AMissingWaitIsARace) {
  // Every wait is needed: without it, something is unordered, or a signal has nobody to hold it back.
  task::TaskGraph graph = tasks();
  auto task = std::find_if(graph.tasks.begin(), graph.tasks.end(), [](const task::Task& t) {
    return std::any_of(t.waits.begin(), t.waits.end(), [](const task::Wait& wait) { return wait.lag == 0; });
  });
  ASSERT_NE(task, graph.tasks.end());
  task->waits.clear();
  const CommandResult result = verify(graph);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr(task->name));
  EXPECT_THAT(result.err, StartsWith("megalith: not sound: "));
  const auto json = nlohmann::json::parse(verify(graph, true).out);
  EXPECT_EQ(json.at("sound"), false);
  EXPECT_FALSE(json.at("findings").empty());
}

TEST_F(Verify, AStreamThatIsEditedIsFound) {
  task::TaskGraph graph = task::from_json(inspect({"--stage", "tasks", "--json", "--target", "cuda:sm_90a"}).out);
  EXPECT_EQ(verify(graph).code, 0);
  const auto task = std::ranges::find_if(graph.tasks, [](const task::Task& t) { return t.stream.has_value(); });
  ASSERT_NE(task, graph.tasks.end());
  task->stream->first_chunk += 1;
  const CommandResult result = verify(graph);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, StartsWith("stream: task \"" + task->name + "\" begins at chunk "));
  // What is wrong may be looked at.
  EXPECT_THAT(megalith_command({"inspect", folder_ / "tasks.json"}).out, HasSubstr("streams   "));
}

TEST_F(Verify, AWrongCountIsADeadlock) {
  task::TaskGraph graph = tasks();
  graph.events.front().arrivals += 1;
  EXPECT_EQ(verify(graph).code, 1);
}

TEST_F(Verify, OverlappingBuffersAreFound) {
  task::TaskGraph graph = tasks();
  for (task::Buffer& buffer : graph.buffers) buffer.offset = 0;
  EXPECT_EQ(verify(graph).code, 1);
}

TEST_F(Verify, WhatIsNoTaskGraphIsAnError) {
  const CommandResult broken = megalith_command({"verify", "-"}, {.stdin_text = "{\"tasks\": 7"});
  EXPECT_EQ(broken.code, 1);
  EXPECT_EQ(broken.out, "");
  EXPECT_THAT(broken.err, StartsWith("megalith: error: stdin: "));
  EXPECT_EQ(megalith_command({"verify", folder_ / "none.json"}).code, 1);
  EXPECT_EQ(megalith_command({"verify", kStoryteller + "/config.json"}).code, 1);
}

}  // namespace
}  // namespace megalith::test
