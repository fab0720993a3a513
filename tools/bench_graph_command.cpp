// megalith bench graph: how fast a graph in a file runs, beside how fast memory is read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/log.h"
#include "megalith/engine/graph_bench.h"
#include "megalith/ops/registry.h"
#include "megalith/task/partition.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/statistics.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

using engine::GraphTiming;

struct GraphOptions {
  std::vector<std::string> files;
  std::string target = "cpu", output = "md";
  int64_t workers = 0, repetitions = 20;
  bool no_optimize = false;
};

double read_share(const GraphTiming& timing) { return timing.gigabytes_per_second() / timing.limits.read_gbs; }

std::string markdown(const GraphOptions& options, const std::vector<GraphTiming>& timings) {
  std::vector<std::vector<std::string>> cells = {
      {"graph", "nodes", "weights", "backend", "workers", "median us", "p10 us", "p90 us", "GB/s", "of read"}};
  for (size_t i = 0; i < timings.size(); ++i) {
    const GraphTiming& timing = timings[i];
    cells.push_back(
        {options.files[i], fmt::format("{}", timing.nodes), format_bytes(static_cast<double>(timing.weight_bytes)),
         options.target, fmt::format("{}", timing.num_workers), fmt::format("{:.2f}", timing.median_seconds() * 1e6),
         fmt::format("{:.2f}", percentile(timing.seconds, 10) * 1e6),
         fmt::format("{:.2f}", percentile(timing.seconds, 90) * 1e6),
         fmt::format("{:.2f}", timing.gigabytes_per_second()), fmt::format("{:.1f} %", 100 * read_share(timing))});
  }
  double read_gbs = 0;
  for (const GraphTiming& timing : timings) read_gbs = std::max(read_gbs, timing.limits.read_gbs);
  return markdown_table(cells, {1, 4, 5, 6, 7, 8, 9}) +
         fmt::format("\nan iteration, over {} of many in one launch; {:.2f} GB/s read by as many workers\n",
                     plural(options.repetitions, "run"), read_gbs);
}

std::string json(const GraphOptions& options, const std::vector<GraphTiming>& timings) {
  std::vector<std::string> objects;
  for (size_t i = 0; i < timings.size(); ++i) {
    const GraphTiming& timing = timings[i];
    std::vector<std::string> samples;
    for (const double seconds : timing.seconds) samples.push_back(fmt::format("{:.4f}", seconds * 1e6));
    objects.push_back(fmt::format(
        "{{\"file\": {}, \"graph\": {}, \"optimized\": {}, \"nodes\": {}, \"backend\": {}, \"build\": {}, "
        "\"n_workers\": {}, \"iterations\": {}, \"runs\": {}, \"median_us\": {:.4f}, \"p10_us\": {:.4f}, "
        "\"p90_us\": {:.4f}, \"weight_bytes\": {}, \"gbs\": {:.4f}, \"read_gbs\": {:.4f}, \"read_share\": {:.6f}, "
        "\"samples_us\": [{}]}}",
        json_quote(options.files[i]), json_quote(timing.name), !options.no_optimize, timing.nodes,
        json_quote(options.target), json_quote(MEGALITH_VERSION), timing.num_workers, timing.iterations,
        timing.seconds.size(), timing.median_seconds() * 1e6, percentile(timing.seconds, 10) * 1e6,
        percentile(timing.seconds, 90) * 1e6, timing.weight_bytes, timing.gigabytes_per_second(),
        timing.limits.read_gbs, read_share(timing), fmt::join(samples, ", ")));
  }
  return fmt::format("[\n{}\n]\n", fmt::join(objects, ",\n"));
}

graph::GraphFile read_graph(const std::string& path) {
  const std::string text = read_input(path);
  try {
    return graph::from_file(text, ops::builtin());
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path == "-" ? "stdin" : path, error.what()));
  }
}

int run_bench_graph(const GraphOptions& options) {
  std::vector<graph::GraphFile> files;  // all of them, before the first one takes its time
  for (const std::string& path : options.files) files.push_back(read_graph(path));
  const InterruptGuard guard([] {});
  const engine::GraphBench bench{.target = options.target,
                                 .num_workers = static_cast<int>(options.workers),
                                 .runs = static_cast<int>(options.repetitions),
                                 .optimized = !options.no_optimize,
                                 .cancelled = [&] { return guard.interrupted(); }};
  std::vector<GraphTiming> timings;
  for (const graph::GraphFile& file : files) {
    GraphTiming timing = engine::time_graph(file, bench);
    if (guard.interrupted()) break;  // what is not complete is left out
    log_info("[bench] {} done", timing.name);
    timings.push_back(std::move(timing));
  }
  if (!timings.empty()) print((options.output == "md" ? markdown : json)(options, timings));
  return guard.interrupted() ? kExitInterrupt : kExitOk;
}

Action declare_bench_graph(Arguments& arguments) {
  auto options = std::make_shared<GraphOptions>();
  arguments.positionals("FILE", options->files,
                        "graphs as Graph.to_file() in Python and tools/layer_graphs.py write them; - is stdin");
  arguments.group("Test");
  arguments.integer("-r,--repetitions", options->repetitions, "runs of each graph, whose median is told (20)", 1,
                    10000);
  arguments.flag("--no-optimize", options->no_optimize, "as it stands in the file: no rule is applied");
  arguments.integer("-t,--threads,--workers", options->workers, "workers (0: MEGALITH_THREADS, or every core)", 0,
                    task::kMaxWorkers);
  arguments.choice("--target", options->target, {"cpu", "cuda"}, "cuda: the GPU of this machine (cpu)");
  arguments.choice("-o,--output", options->output, {"md", "json"}, "how results are written (md)");
  return [options] { return run_bench_graph(*options); };
}

}  // namespace

Command bench_graph_command() {
  return {"bench graph", "how fast a graph in a file runs, beside how fast memory is read",
          "megalith bench graph layer.graph -r 50 -o json", declare_bench_graph};
}

}  // namespace megalith::tools
