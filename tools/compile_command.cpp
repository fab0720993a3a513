// megalith compile: a model's kernel into the cache, or its artifacts into a folder to read.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/threads.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/nvrtc.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct CompileCommandOptions {
  ModelOptions model;
  std::string output;
  bool plan_only = false, json = false;
};

// Graph to verified task graph; what comes after it is text and the C++ compiler.
double planning_ms(const jit::CompileReport& report) {
  double ms = 0;
  for (const jit::StageReport& stage : report.stages)
    if (stage.name == "build" || stage.name == "schedule" || stage.name == "lower" || stage.name == "partition")
      ms += stage.ms;
  return ms;
}

const char* ending(const jit::CompiledKernel& kernel, bool plan_only) {
  if (plan_only) return "planned only";
  return kernel.report.cache_hit || kernel.cuda.cache_hit ? "found in the cache" : "compiled";
}

std::string report_json(const jit::CompiledKernel& kernel, const CompileCommandOptions& options, double graph_ms) {
  std::vector<std::string> stages;
  for (const jit::StageReport& stage : kernel.report.stages)
    stages.push_back(fmt::format(R"({{"name": {}, "file": {}, "bytes": {}, "ms": {:.3f}, "from": {}}})",
                                 json_quote(stage.name), json_quote(stage.file), stage.bytes, stage.ms,
                                 json_quote(jit::stage_from_name(stage.from))));
  return fmt::format(
      R"({{"kernel": {}, "model": {}, "version": {}, "target": {}, "workers": {},
 "tasks": {}, "events": {}, "arena_bytes": {}, "scratch_bytes_per_worker": {},
 "graph_ms": {:.3f}, "planning_ms": {:.3f}, "compiler_ms": {:.3f}, "total_ms": {:.3f}, "cache_hit": {}, "key": {},
 "stages": [
  {}]}}
)",
      json_quote(kernel.report.kernel), json_quote(options.model.folder()), json_quote(MEGALITH_VERSION),
      json_quote(options.model.target), kernel.tasks.workers.size(), kernel.tasks.tasks.size(),
      kernel.tasks.events.size(), kernel.tasks.arena_bytes, kernel.scratch_bytes, graph_ms, planning_ms(kernel.report),
      kernel.build.compile_ms + kernel.cuda.compile_ms, kernel.report.total_ms, kernel.report.cache_hit,
      json_quote(kernel.cuda.key.empty() ? kernel.build.key : kernel.cuda.key), fmt::join(stages, ",\n  "));
}

void write_artifacts(const std::string& folder, const jit::CompiledKernel& kernel, const std::string& report) {
  for (const jit::StageReport& stage : kernel.report.stages)
    if (!stage.file.empty() && !stage.text.empty()) file_write_atomic(folder + "/" + stage.file, stage.text);
  const std::string& entry = kernel.cuda.directory.empty() ? kernel.build.directory : kernel.cuda.directory;
  if (!entry.empty()) file_write_atomic(folder + "/command.txt", file_read(entry + "/command.txt"));
  file_write_atomic(folder + "/report.json", report);
}

int run_compile(const CompileCommandOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> opener;  // of NVRTC, 7 ms that pass while the graph is made
  if (!options.plan_only && jit::is_cuda_target(options.model.target)) opener = start_helpers(1, jit::open_nvrtc);
  const ModelGraph model = model_graph(options.model);
  const double graph_ms = jit::milliseconds_since(start);

  jit::CompileOptions compile_options{
      .target = options.model.target, .num_workers = options.model.workers(), .plan_only = options.plan_only};
  if (!options.output.empty()) {  // a folder that cannot be written is said before the work
    directory_create(options.output);
    file_check_writable(options.output + "/report.json");
    compile_options.pipeline.keep = {"build", "schedule", "lower", "partition", "distribute",
                                     "emit",  "assemble", "ptx",   "cubin"};
  }
  const jit::CompiledKernel kernel = jit::compile(model.graph, compile_options);

  const std::string report = report_json(kernel, options, graph_ms);
  if (!options.output.empty()) write_artifacts(options.output, kernel, report);
  if (options.json) return print(report), kExitOk;
  print(kernel.report.table());
  print(fmt::format("planning     {} from the graph to {} and {} for {}, verified\n",
                    format_ms(planning_ms(kernel.report)),
                    plural(static_cast<int64_t>(kernel.tasks.tasks.size()), "task"),
                    plural(static_cast<int64_t>(kernel.tasks.events.size()), "event"),
                    plural(static_cast<int64_t>(kernel.tasks.workers.size()), "worker")));
  if (!kernel.cuda.architecture.empty())
    print(fmt::format("resources    {} ({})\n", kernel.cuda.resources.text(), kernel.cuda.architecture));
  print(fmt::format("memory       {} of activations, {} of scratch for each worker\n",
                    format_bytes(static_cast<double>(kernel.tasks.arena_bytes)),
                    format_bytes(static_cast<double>(kernel.scratch_bytes))));
  print(fmt::format("total        {}, {}\n", format_ms(graph_ms + kernel.report.total_ms),
                    ending(kernel, options.plan_only)));
  if (!options.output.empty())
    print(fmt::format("artifacts    {}\n", options.output));
  else if (!options.plan_only)
    print(fmt::format("kernel       {}\n",
                      kernel.cuda.directory.empty() ? kernel.build.library.path() : kernel.cuda.directory));
  return kExitOk;
}

Action declare_compile(Arguments& arguments) {
  auto options = std::make_shared<CompileCommandOptions>();
  arguments.text("-o,--output", options->output, "DIR",
                 "writes graph.txt, plan.txt, loops.txt, tasks.json, kernel.cpp, kernel.so, command.txt and "
                 "report.json there; for "
                 "a GPU kernel.cu, kernel.ptx and kernel.cubin");
  arguments.flag("--plan-only", options->plan_only, "stops at the source: for models too large for this machine");
  arguments.flag("--json", options->json, "prints the report as JSON");
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return run_compile(*options); };
}

}  // namespace

Command compile_command() {
  return {"compile", "make a model's kernel, and keep it in the cache",
          "megalith compile models/storyteller -o /tmp/storyteller", declare_compile};
}

}  // namespace megalith::tools
