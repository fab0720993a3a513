#include "megalith/engine/graph_bench.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/engine/made_up_tensors.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/optimize/optimize.h"
#include "megalith/runtime/cuda/memory.h"

namespace megalith::engine {

namespace {

using graph::Graph;
using graph::Operand;
using graph::TensorKind;

// Of a run, for the reasons that operator_bench.cpp has.
constexpr double kCpuGraphSeconds = 0.05, kCudaGraphSeconds = 0.05;

// Constants of which an iteration reads everything: not the tables that data points into.
int64_t weight_bytes(const Graph& graph) {
  std::set<graph::TensorId> read;
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.op->operands[i];
      const bool is_table = std::ranges::any_of(node.op->operands, [&](const Operand& index) {
        return !index.index_into.empty() && !operand.shape.empty() && index.index_into == operand.shape[0];
      });
      if (graph.tensor(node.operands[i]).kind == TensorKind::constant && !is_table) read.insert(node.operands[i]);
    }
  int64_t bytes = 0;
  for (const graph::TensorId id : read) bytes += graph.tensor(id).streamed_bytes();
  return bytes;
}

}  // namespace

double GraphTiming::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

GraphTiming time_graph(const graph::GraphFile& file, const GraphBench& options) {
  for (const graph::Node& node : file.graph.nodes())
    MEGALITH_CHECK(!node.op->reference,
                   "[{}] what it does depends on a whole token loop: a graph with it has no speed of its own (node "
                   "\"{}\")",
                   node.op->name, node.name);
  MEGALITH_CHECK(!file.graph.nodes().empty(), "the graph \"{}\" has no nodes", file.graph.name());
  const Graph graph = options.optimized ? optimize::optimize(file.graph, options.target) : file.graph;
  const int workers = options.num_workers > 0 ? options.num_workers : default_num_workers(options.target);
  GraphTiming timing{.name = graph.name(),
                     .nodes = std::ssize(graph.nodes()),
                     .weight_bytes = weight_bytes(graph),
                     .iterations = 1,
                     .seconds = {},
                     .limits = {},
                     .num_workers = workers};
  const jit::CompiledKernel kernel = jit::compile(graph, {.target = options.target, .num_workers = workers});
  const bool on_gpu = jit::is_cuda_target(options.target);
  std::optional<runtime::CudaContextGuard> context;
  if (on_gpu) context.emplace(jit::cuda_device().ordinal);
  const MadeUpTensors contents(file, graph, on_gpu);
  GraphRunner runner(graph, kernel, contents.places());
  const auto seconds = [&] {
    const auto begin = std::chrono::steady_clock::now();
    runner.run(static_cast<uint32_t>(timing.iterations));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto cancelled = [&] { return options.cancelled && options.cancelled(); };

  timing.limits.measure(options.target, workers);
  Progress progress(fmt::format("timing {}", graph.name()), options.runs);
  constexpr int64_t kMax = 1 << 20;
  while (!cancelled() && std::min(seconds(), seconds()) < (on_gpu ? kCudaGraphSeconds : kCpuGraphSeconds) &&
         timing.iterations < kMax)
    timing.iterations *= 2;
  for (int run = 0; run < options.runs && !cancelled(); ++run) {
    timing.seconds.push_back(seconds() / static_cast<double>(timing.iterations));
    progress.advance();
  }
  timing.limits.measure(options.target, workers);
  return timing;
}

}  // namespace megalith::engine
