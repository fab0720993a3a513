#include "megalith/engine/graph_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/graph_memory.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/graph/sizes.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/optimize/optimize.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {

namespace {

using graph::Graph;
using graph::Operand;
using graph::Tensor;
using graph::TensorKind;

// Of a run, for the reasons that operator_bench.cpp has.
constexpr double kCpuGraphSeconds = 0.05, kCudaGraphSeconds = 0.05;

// Of states of integers that operators point with: what all of them may be.
std::map<std::string, int64_t> limits_of(const Graph& graph) {
  std::map<std::string, int64_t> limits;
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.op->operands[i];
      if (operand.index_into.empty()) continue;
      const Operand into{"x", loop::Role::input, {operand.index_into}, DType::i32};
      const int64_t limit = graph::operand_shape(*node.op, into, {node.sizes, {}})[0].size;
      const auto [at, is_new] = limits.try_emplace(graph.tensor(node.operands[i]).name, limit);
      at->second = std::min(at->second, limit);
    }
  return limits;
}

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

// Memory for all constants and states, by name, on the side where the target wants it.
class Contents {
 public:
  Contents(const graph::GraphFile& file, const Graph& graph, bool on_gpu) : file_(file), on_gpu_(on_gpu) {
    const std::map<std::string, int64_t> limits = limits_of(file.graph);
    check_memory(graph);
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.kind == TensorKind::activation) continue;
      if (!tensor.parts.empty())
        add_parts(tensor);
      else if (!places_.contains(tensor.name))
        add(tensor.name, tensor, tensor.shape[0].size, limits);
    }
  }
  const std::map<std::string, TensorMemory>& places() const { return places_; }

 private:
  static void check_memory(const Graph& graph) {
    int64_t bytes = 0;
    for (const Tensor& tensor : graph.tensors())
      if (tensor.kind != TensorKind::activation) bytes += tensor.bytes();
    if (bytes > runtime::memory_available_bytes())
      throw SystemError(fmt::format("[memory] the tensors of \"{}\" take {} bytes, and {} are available", graph.name(),
                                    bytes, runtime::memory_available_bytes()));
  }

  // The graph does not say how many rows each part has, but those that are tensors of it themselves do.
  void add_parts(const Tensor& stacked) {
    std::map<std::string, int64_t> rows;
    int64_t left = stacked.shape[0].size;
    for (const std::string& part : stacked.parts)
      if (file_.graph.has(part)) left -= rows[part] = file_.graph.tensor(file_.graph.find(part)).shape[0].size;
    for (auto part = stacked.parts.begin(); part != stacked.parts.end(); ++part) {
      if (rows.contains(*part)) continue;
      const bool is_last = std::all_of(part + 1, stacked.parts.end(), [&](const auto& p) { return rows.contains(p); });
      left -= rows[*part] = is_last ? left : stacked.groups;
    }
    for (const std::string& part : stacked.parts)
      if (!places_.contains(part)) add(part, stacked, rows.at(part), {});
  }

  // `rows` rows of a tensor like this one.
  void add(const std::string& name, const Tensor& like, int64_t rows, const std::map<std::string, int64_t>& limits) {
    const int64_t elements = like.num_elements() / like.shape[0].size * rows;
    const int64_t bytes = elements * dtype_bytes(like.dtype);
    std::vector<std::byte>& memory = host_.emplace_back(static_cast<size_t>(bytes) + 64);
    std::byte* const at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    if (dtype_is_float(like.dtype) || like.dtype == DType::i8)
      fill_random(at, like, elements);
    else
      fill_integers(at, name, like, elements, limits);
    places_[name] = {.address = at, .rows = rows};
    if (!on_gpu_ || like.kind != TensorKind::state) return;  // constants go to a GPU by themselves
    runtime::DeviceMemory& device = device_.emplace_back(bytes, name);
    device.upload(at, bytes);
    places_[name] = {.address = device.data(), .on_device = true};
  }

  // Of a matrix such that products are of about the size of what is multiplied. A million values, again and again.
  void fill_random(std::byte* at, const Tensor& like, int64_t elements) {
    const int64_t columns = like.shape.back().size, some = std::min<int64_t>(elements, 1 << 20);
    const bool is_matrix = like.kind == TensorKind::constant && like.shape.size() == 2;
    const double scale = is_matrix && like.dtype != DType::i8 ? 1 / std::sqrt(static_cast<double>(columns)) : 1;
    const std::vector<double> values = random_values(some, like.dtype, 100, random_);
    for (int64_t i = 0; i < some; ++i) element_store(at, like.dtype, i, scale * values[static_cast<size_t>(i)]);
    const int64_t bytes = dtype_bytes(like.dtype);
    for (int64_t i = some; i < elements; i += some)
      std::memcpy(at + i * bytes, at, static_cast<size_t>(std::min(some, elements - i) * bytes));
  }

  void fill_integers(std::byte* at, const std::string& name, const Tensor& like, int64_t elements,
                     const std::map<std::string, int64_t>& limits) {
    std::vector<double> values(static_cast<size_t>(elements));
    if (const auto said = file_.values.find(name); said != file_.values.end()) {
      std::ranges::copy(said->second, values.begin());
    } else {
      if (const auto limit = limits.find(name); limit != limits.end())
        values = random_values(elements, like.dtype, limit->second, random_);
      for (const auto& [size, where] : file_.graph.dynamic_sizes())
        if (file_.graph.tensor(where.tensor).name == name)
          values[static_cast<size_t>(where.index)] = static_cast<double>(largest(size));
    }
    for (int64_t i = 0; i < elements; ++i) element_store(at, like.dtype, i, values[static_cast<size_t>(i)]);
  }

  int64_t largest(const std::string& dynamic) const {
    int64_t size = 0;
    for (const Tensor& tensor : file_.graph.tensors())
      for (const graph::Dim& dim : tensor.shape)
        if (dim.dynamic == dynamic) size = std::max(size, dim.size);
    return size;
  }

  const graph::GraphFile& file_;
  bool on_gpu_;
  std::mt19937_64 random_{7};
  std::deque<std::vector<std::byte>> host_;
  std::deque<runtime::DeviceMemory> device_;
  std::map<std::string, TensorMemory> places_;
};

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
  const Contents contents(file, graph, on_gpu);
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
