#include "megalith/jit/compile.h"

#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/codegen/emit.h"
#include "megalith/graph/text.h"
#include "megalith/task/json.h"
#include "megalith/task/partition.h"
#include "megalith/task/plan.h"
#include "megalith/task/verify.h"

namespace megalith::jit {

namespace {

// The task that ends an iteration, if the graph has a loop.
std::optional<int> gate_task(const graph::Graph& graph, const task::Partitioned& partitioned) {
  if (!graph.gate_node()) return std::nullopt;
  std::optional<int> gate;
  for (size_t i = 0; i < partitioned.tasks.size(); ++i) {
    if (partitioned.tasks[i].node != *graph.gate_node()) continue;
    MEGALITH_CHECK(!gate, "the node \"{}\" ends the iteration and must be one task",
                   graph.nodes()[static_cast<size_t>(*graph.gate_node())].name);
    gate = static_cast<int>(i);
  }
  return gate;
}

task::TaskGraph make_tasks(const graph::Graph& graph, const graph::LoweredGraph& lowered, int num_workers) {
  task::Partitioned partitioned = task::partition(graph, lowered, num_workers);
  const std::optional<int> gate = gate_task(graph, partitioned);
  return task::plan(std::move(partitioned.tasks), std::move(partitioned.buffers),
                    {.name = graph.name(), .num_workers = num_workers, .gate_task = gate});
}

void check_tasks(const task::TaskGraph& tasks) {
  const task::VerifyResult result = task::verify(tasks);
  if (!result.ok()) throw UserError(fmt::format("the task graph is not sound: {}", result.findings.front().message));
}

int64_t scratch_bytes(const Library& library) {
  return nlohmann::json::parse(library.kernel_info()).at("scratch_bytes").get<int64_t>();
}

}  // namespace

CompiledKernel compile(const graph::Graph& graph, const CompileOptions& options) {
  MEGALITH_CHECK(options.target == "cpu", "there is no target \"{}\"; known is cpu", options.target);
  Pipeline pipeline(graph.name(), options.pipeline);
  CompiledKernel kernel;

  pipeline.stage(
      {"build", "graph.txt"}, [&] { return 0; }, [&](int) { return graph::print(graph); }, nullptr, nullptr);
  kernel.lowered = pipeline.stage(
      {"lower", "loops.txt"}, [&] { return graph::lower(graph, options.target); },
      [&](const graph::LoweredGraph& l) { return graph::print(graph, l); },
      [&](const std::string& text) { return graph::parse_loops(text, graph::lower(graph, options.target)); }, nullptr);
  kernel.tasks = pipeline.stage(
      {"partition", "tasks.json"}, [&] { return make_tasks(graph, kernel.lowered, options.num_workers); },
      [](const task::TaskGraph& tasks) { return task::to_json(tasks); },
      [](const std::string& text) { return task::from_json(text); }, check_tasks);
  kernel.source = pipeline.stage(
      {"emit", "kernel.cpp"}, [&] { return codegen::emit_cpu(kernel.lowered.kernels, graph.name()).text; },
      [](const std::string& text) { return text; }, [](const std::string& text) { return text; }, nullptr);
  if (!options.plan_only) {
    kernel.build = build_shared_object(pipeline, {.name = graph.name(), .source = kernel.source});
    kernel.scratch_bytes = scratch_bytes(kernel.build.library);
  }
  kernel.report = pipeline.finish();
  return kernel;
}

}  // namespace megalith::jit
