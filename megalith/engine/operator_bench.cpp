#include "megalith/engine/operator_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/engine/operator_cases.h"
#include "megalith/graph/lower.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/task/cost.h"

namespace megalith::engine {

namespace {

// Operands of all copies together: several times a GPU's L2, and what a core's share of a server's L3 is.
constexpr double kBytesOfCopies = 256 << 20;
constexpr int kMaxCopies = 64;
constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();
// Of a run: threads begin and end in a twentieth of a millisecond. A GPU's run is seen to end when it does
// (runtime/cuda/launcher.cpp), but its counters are set and the workers' states fetched by copies that are waited for,
// some tenth of a millisecond together.
constexpr double kCpuSeconds = 0.005, kCudaSeconds = 0.01;

std::shared_ptr<const graph::Registry> registry_of(const graph::Operator& op) {
  auto registry = std::make_shared<graph::Registry>();
  registry->add(op);
  return registry;
}

bool fits(const graph::Operator& op, const OperatorSizes& sizes) {
  try {
    graph::Graph graph(registry_of(op), "bench");
    add_operator(graph, op, op.name, DType::bf16, sizes);
    optimize::lower(graph, "cpu");
    return true;
  } catch (const UserError&) { return false; }
}

double volume(const OperatorSizes& sizes) {
  double result = 1;
  for (const auto& [name, size] : sizes) result *= static_cast<double>(size);
  return result;
}

// The operands of a graph's nodes, where the target wants them.
class BenchMemory {
 public:
  BenchMemory(const graph::Graph& graph, bool on_gpu) : memory_(graph) {
    std::mt19937_64 random(7);
    const graph::Node& first = graph.nodes().front();
    fill_operator(graph, first, memory_, random);
    for (const graph::Node& node : graph.nodes())
      for (size_t i = 0; i < node.operands.size(); ++i) {
        const graph::Tensor& tensor = graph.tensor(node.operands[i]);
        void* const address = memory_.address(tensor.name);
        std::memmove(address, memory_.address(graph.tensor(first.operands[i]).name),
                     static_cast<size_t>(tensor.bytes()));
        // Constants go to a GPU by themselves.
        if (on_gpu && tensor.kind == graph::TensorKind::state && !places_.contains(tensor.name)) {
          runtime::DeviceMemory& memory = device_.emplace_back(tensor.bytes(), tensor.name);
          memory.upload(address, tensor.bytes());
          places_[tensor.name] = {memory.data(), true};
        } else if (!on_gpu || tensor.kind == graph::TensorKind::constant) {
          places_[tensor.name] = {address};
        }
      }
  }
  const std::map<std::string, TensorMemory>& places() const { return places_; }

 private:
  GraphMemory memory_;
  std::deque<runtime::DeviceMemory> device_;
  std::map<std::string, TensorMemory> places_;
};

double seconds_of(GraphRunner& runner, int64_t iterations) {
  const auto begin = std::chrono::steady_clock::now();
  runner.run(static_cast<uint32_t>(iterations));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::vector<OperatorSizes> bench_shapes(const graph::Operator& op) {
  MEGALITH_CHECK(!op.tests.empty(), "[{}] declares no sizes", op.name);
  const OperatorSizes tested =
      *std::ranges::max_element(op.tests, [](const auto& a, const auto& b) { return volume(a) < volume(b); });
  OperatorSizes large = tested;
  for (auto& [name, size] : large) {
    if (name == "H" || name == "K" || name == "N" || name == "I") size = 4096;
    if (name == "V") size = 32768;
  }
  // Without rows it is the largest size that grows.
  std::string grows = "T";
  if (!tested.contains(grows))
    grows = std::ranges::max_element(large, [](const auto& a, const auto& b) { return a.second < b.second; })->first;
  for (const OperatorSizes& base : {large, tested}) {
    std::vector<OperatorSizes> shapes;
    for (const int64_t factor : {1, 8, 64, 512}) {
      OperatorSizes sizes = base;
      sizes[grows] = grows == "T" ? factor : base.at(grows) * factor;
      if (grows == "T" && sizes.contains("U")) sizes["U"] = factor;  // where there are two numbers of rows
      if (fits(op, sizes)) shapes.push_back(std::move(sizes));
    }
    if (shapes.size() >= 4) return shapes;
  }
  return op.tests;  // sizes that depend on each other
}

OperatorTiming time_operator(const graph::Operator& op, const OperatorSizes& sizes, const OperatorBench& options) {
  MEGALITH_CHECK(!op.reference, "[{}] what it does depends on a whole token loop: it has no speed of its own", op.name);
  for (const auto& [name, size] : op.tests.empty() ? OperatorSizes{} : op.tests.front())
    MEGALITH_CHECK(sizes.contains(name), "[{}] the size {} is missing", op.name, name);
  for (const auto& [name, size] : sizes)
    MEGALITH_CHECK(op.tests.empty() || op.tests.front().contains(name), "[{}] has no size {}", op.name, name);
  std::string shape;
  for (const auto& [name, size] : sizes) shape += fmt::format(" {}={}", name, size);
  OperatorTiming timing{.sizes = sizes};
  graph::Graph graph(registry_of(op), "bench " + op.name);
  add_operator(graph, op, "copy0", options.dtype, sizes);
  {
    const graph::LoweredGraph lowered = optimize::lower(graph, options.target);
    const task::Cost cost = task::Costs(graph, lowered, machine::worker_rates(options.target)).of(0, {}, kAllRows);
    timing.bytes = cost.bytes();
    timing.flops = cost.flops;
  }
  timing.copies = std::clamp(static_cast<int>(kBytesOfCopies / std::max(timing.bytes, 1.0)), 1, kMaxCopies);
  for (int copy = 1; copy < timing.copies; ++copy)
    add_operator(graph, op, fmt::format("copy{}", copy), options.dtype, sizes);

  const int workers = options.num_workers > 0 ? options.num_workers : default_num_workers(options.target);
  const jit::CompiledKernel kernel = jit::compile(graph, {.target = options.target, .num_workers = workers});
  const bool on_gpu = jit::is_cuda_target(options.target);
  std::optional<runtime::CudaContextGuard> context;
  if (on_gpu) context.emplace(jit::cuda_device().ordinal);
  const BenchMemory memory(graph, on_gpu);
  GraphRunner runner(graph, kernel, memory.places());

  Progress progress(fmt::format("timing {}{}", op.name, shape), options.runs);
  // Twice as often until a run is long enough, also when nobody disturbs it.
  const double enough = on_gpu ? kCudaSeconds : kCpuSeconds;
  constexpr int64_t kMax = 1 << 20;
  const auto fastest = [&] {
    double best = seconds_of(runner, timing.iterations);
    for (int again = 0; again < 2 && best >= enough; ++again)
      best = std::min(best, seconds_of(runner, timing.iterations));
    return best;
  };
  const auto cancelled = [&] { return options.cancelled && options.cancelled(); };
  while (!cancelled() && fastest() < enough && timing.iterations < kMax) timing.iterations *= 2;
  const auto times = static_cast<double>(timing.iterations) * timing.copies;
  for (int run = 0; run < options.runs && !cancelled(); ++run) {
    timing.seconds.push_back(seconds_of(runner, timing.iterations) / times);
    progress.advance();
  }
  return timing;
}

OperatorBenchResult bench_operator(const graph::Operator& op, const std::vector<OperatorSizes>& shapes,
                                   const OperatorBench& options,
                                   const std::function<bool(const OperatorTiming&)>& done) {
  OperatorBenchResult result;
  result.num_workers = options.num_workers > 0 ? options.num_workers : default_num_workers(options.target);
  for (const OperatorSizes& sizes : shapes) {
    OperatorTiming timing = time_operator(op, sizes, options);
    if (std::ssize(timing.seconds) < options.runs) break;  // cancelled
    result.timings.push_back(std::move(timing));
    if (result.timings.size() == 1) result.limits.measure(options.target, result.num_workers);
    if (done && !done(result.timings.back())) break;
  }
  if (!result.timings.empty()) result.limits.measure(options.target, result.num_workers);
  return result;
}

double OperatorTiming::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

}  // namespace megalith::engine
