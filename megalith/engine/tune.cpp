#include "megalith/engine/tune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/codegen/body_schedule.h"
#include "megalith/codegen/candidates.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/engine/made_up_tensors.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/jit/measured_schedules.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/memory.h"

namespace megalith::engine {

namespace {

using graph::Graph;
using graph::LoweredKernel;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;

// Copies of a node in a graph, so that an iteration's beginning and end do not count, as far as their operands stay in a cache,
// as they do in a model.
constexpr int kMaxCopies = 64;
constexpr int64_t kBytesOfCopies = 8 << 20;
// Of a run: on a CPU so short that some run is not disturbed where others compute, too; on a GPU for the reason that
// operator_bench.cpp has.
constexpr double kCpuSeconds = 0.002, kCudaSeconds = 0.01;
constexpr int kCalibrations = 10, kAttempts = 3;
constexpr int64_t kMaxIterations = 1 << 20;
// Less is no reason to leave what is proposed: what the same code takes differs by about as much from one run to the next.
constexpr double kLeastGain = 0.05;

bool is_generated(const LoweredKernel& kernel) { return !kernel.body && !kernel.kernel.opaque; }

// A graph of copies of one node, with tensors of their own for all that is no constant.
class Alone {
 public:
  Alone(const graph::GraphFile& file, size_t node, int64_t rows)
      : whole_(file),
        node_(file.graph.nodes()[node]),
        file_{Graph(file.graph.shared_registry(), "tune " + node_.op->name), {}} {
    int64_t bytes = 0;
    for (const TensorId id : node_.operands) bytes += file.graph.tensor(id).bytes();
    num_copies_ = static_cast<int>(std::clamp<int64_t>(kBytesOfCopies / std::max<int64_t>(bytes, 1), 1, kMaxCopies));
    for (const auto& [size, dynamic] : node_.dynamic) add_dynamic(dynamic, std::min(rows, node_.sizes.at(size)));
    for (int copy = 0; copy < num_copies_; ++copy) add_copy(copy);
  }

  const graph::GraphFile& file() const { return file_; }
  int num_copies() const { return num_copies_; }

 private:
  // Where the size is read, a tensor that all copies share.
  void add_dynamic(const std::string& dynamic, int64_t size) {
    const graph::DynamicSize where = whole_.graph.dynamic_sizes().at(dynamic);
    const Tensor& tensor = whole_.graph.tensor(where.tensor);
    if (!shared_.contains(where.tensor)) {
      shared_[where.tensor] = file_.graph.state(tensor.name, tensor.dtype, tensor.shape);
      file_.values[tensor.name].resize(static_cast<size_t>(tensor.num_elements()));
    }
    file_.values[tensor.name][static_cast<size_t>(where.index)] = size;
    file_.graph.dynamic_size(dynamic, shared_.at(where.tensor), where.index);
  }

  void add_copy(int copy) {
    std::map<TensorId, TensorId> own;
    std::vector<TensorId> inputs;
    graph::NodeOptions options{.sizes = {},
                               .attributes = node_.attributes,
                               .tile = node_.tile,
                               .outputs = {},
                               .dtypes = {},
                               .pieces = node_.pieces};
    for (const std::string& size : node_.op->extra_sizes) options.sizes[size] = node_.sizes.at(size);
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      const TensorId id = node_.operands[i];
      const bool is_shared = whole_.graph.tensor(id).kind == TensorKind::constant || shared_.contains(id);
      std::map<TensorId, TensorId>& places = is_shared ? shared_ : own;
      if (!places.contains(id)) places[id] = add_tensor(id, is_shared ? "" : fmt::format(".{}", copy));
      if (node_.op->operands[i].role == loop::Role::output)
        options.outputs[node_.op->operands[i].name] = places.at(id);
      else
        inputs.push_back(places.at(id));
    }
    file_.graph.add(node_.op->name, fmt::format("{}.{}", node_.name, copy), inputs, options);
  }

  TensorId add_tensor(TensorId id, const std::string& ending) {
    const Tensor& tensor = whole_.graph.tensor(id);
    const std::string name = tensor.name + ending;
    if (tensor.kind == TensorKind::constant) {
      const TensorId made = file_.graph.constant(name, tensor.dtype, tensor.shape);
      if (tensor.quant_columns > 0 && dtype_is_float(tensor.dtype)) file_.graph.quantize(made, tensor.quant_columns);
      return made;
    }
    if (const auto said = whole_.values.find(tensor.name); said != whole_.values.end())
      file_.values[name] = said->second;
    return file_.graph.state(name, tensor.dtype, tensor.shape,
                             tensor.kind == TensorKind::activation || tensor.any_layout);
  }

  const graph::GraphFile& whole_;
  const graph::Node& node_;
  graph::GraphFile file_;
  std::map<TensorId, TensorId> shared_;
  int num_copies_ = 1;
};

// One schedule, ready to run.
struct Compiled {
  std::unique_ptr<jit::CompiledKernel> kernel;
  std::unique_ptr<GraphRunner> runner;
  std::vector<double> seconds = {};
};

class Tuner {
 public:
  Tuner(const graph::GraphFile& file, const TuneOptions& options)
      : file_(file),
        options_(options),
        on_gpu_(jit::is_cuda_target(options.target)),
        workers_(options.num_workers > 0 ? options.num_workers : default_num_workers(options.target)),
        lowered_(optimize::lower(file.graph, options.target)) {
    for (const std::string& name : options.bodies) check_name(name);
    for (const auto& [name, steps] : options.more) check_name(name);
  }

  std::vector<TimedBody> run(const std::function<bool(const TimedBody&)>& done) {
    std::vector<TimedBody> bodies;
    for (size_t k = 0; k < lowered_.kernels.size(); ++k) {
      const LoweredKernel& kernel = lowered_.kernels[k];
      if (!is_generated(kernel)) continue;
      if (!options_.bodies.empty() && std::ranges::find(options_.bodies, kernel.name) == options_.bodies.end())
        continue;
      const auto node =
          std::ranges::find(lowered_.kernel_of_node, static_cast<int>(k)) - lowered_.kernel_of_node.begin();
      TimedBody body = tune(kernel, static_cast<size_t>(node));
      if (cancelled()) break;
      bodies.push_back(std::move(body));
      if (done && !done(bodies.back())) break;
    }
    return bodies;
  }

 private:
  bool cancelled() const { return options_.cancelled && options_.cancelled(); }

  void check_name(const std::string& name) const {
    std::vector<std::string> known;
    for (const LoweredKernel& kernel : lowered_.kernels)
      if (is_generated(kernel)) known.push_back(kernel.name);
    MEGALITH_CHECK(std::ranges::find(known, name) != known.end(), "there is no generated body \"{}\": {}", name,
                   known.empty() ? "all bodies of this graph were written by hand"
                                 : fmt::format("want {}", fmt::join(known, ", ")));
  }

  std::vector<std::string> schedules(const LoweredKernel& kernel) const {
    const codegen::Dialect dialect = codegen::dialect_of(jit::target_family(options_.target));
    const loop::Kernel bound = loop::bind(kernel.kernel, kernel.binding);
    std::vector<std::string> all;
    loop::with_isl_limit(kernel.name, [&] {
      all = codegen::schedule_candidates(kernel, bound, dialect, static_cast<size_t>(options_.most));
      if (const auto more = options_.more.find(kernel.name); more != options_.more.end())
        for (const std::string& steps : more->second)
          all.push_back(codegen::checked_schedule(kernel, bound, dialect, steps).text());
    });
    return all;
  }

  TimedBody tune(const LoweredKernel& kernel, size_t node) const {
    TimedBody body{.kernel = kernel, .node = file_.graph.nodes()[node].name};
    const Alone alone(file_, node, options_.rows);
    const Graph& graph = alone.file().graph;
    const graph::LoweredGraph lowered = optimize::lower(graph, options_.target);
    if (lowered.kernels.size() != 1 || !is_generated(lowered.kernels[0]) ||
        !jit::have_same_body(lowered.kernels[0], kernel)) {
      body.reason = "by itself it is computed otherwise";
      return body;
    }
    const std::vector<std::string> all = schedules(kernel);
    if (all.size() == 1) {
      body.reason = "no other schedule of it is legal";
      return body;
    }
    std::optional<runtime::CudaContextGuard> context;
    if (on_gpu_) context.emplace(jit::cuda_device().ordinal);
    const MadeUpTensors tensors(alone.file(), graph, on_gpu_);
    Progress progress(fmt::format("tuning {}", kernel.name), std::ssize(all) + options_.runs);
    std::vector<Compiled> compiled;
    for (const std::string& steps : all) {
      if (cancelled()) return body;
      Compiled& one = compiled.emplace_back();
      TimedSchedule& tried = body.tried.emplace_back(TimedSchedule{steps});
      try {
        const std::string bodies = fmt::format("body {}\n{}", lowered.kernels[0].name, steps);
        one.kernel = std::make_unique<jit::CompiledKernel>(jit::compile(
            graph, {.target = options_.target, .num_workers = workers_, .bodies = bodies, .pipeline = {}}));
        one.runner = std::make_unique<GraphRunner>(graph, *one.kernel, tensors.places());
        one.runner->run();
      } catch (const UserError& error) {  // more than the machine can hold
        one.runner.reset();
        tried.seconds = std::numeric_limits<double>::infinity();
        tried.reason = error.what();
      }
      progress.advance();
    }
    if (std::string reason = body.proposed().reason; !reason.empty()) {
      body.tried.clear();
      body.reason = std::move(reason);
      return body;
    }
    time(compiled, alone.num_copies(), progress);
    for (size_t i = 0; i < compiled.size(); ++i)
      if (compiled[i].runner && !compiled[i].seconds.empty())
        body.tried[i].seconds = std::ranges::min(compiled[i].seconds);
    return body;
  }

  // All of them in turn, so that what else the machine does comes to all.
  void time(std::vector<Compiled>& compiled, int copies, Progress& progress) const {
    const auto seconds = [&](Compiled& one, int64_t iterations) {
      const auto begin = std::chrono::steady_clock::now();
      one.runner->run(static_cast<uint32_t>(iterations));
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const auto first = std::ranges::find_if(compiled, [](const Compiled& one) { return one.runner != nullptr; });
    if (first == compiled.end()) return;
    const double enough = on_gpu_ ? kCudaSeconds : kCpuSeconds;
    // Twice as often until a run is long enough, also when nobody disturbs it.
    const auto fastest = [&](int64_t iterations) {
      double best = seconds(*first, iterations);
      for (int again = 0; again < kCalibrations && best >= enough; ++again)
        best = std::min(best, seconds(*first, iterations));
      return best;
    };
    for (int attempt = 0; attempt < kAttempts && !cancelled(); ++attempt) {
      int64_t iterations = 1;
      while (!cancelled() && fastest(iterations) < enough && iterations < kMaxIterations) iterations *= 2;
      for (Compiled& one : compiled) one.seconds.clear();
      for (int run = 0; run < options_.runs && !cancelled(); ++run) {
        for (Compiled& one : compiled)
          if (one.runner) one.seconds.push_back(seconds(one, iterations) / static_cast<double>(iterations * copies));
        if (attempt == 0) progress.advance();
      }
      // Else the machine was so busy that runs were taken for longer than they are.
      if (first->seconds.empty() ||
          std::ranges::min(first->seconds) * static_cast<double>(iterations * copies) > enough / 2)
        return;
    }
  }

  const graph::GraphFile& file_;
  const TuneOptions& options_;
  bool on_gpu_;
  int workers_;
  graph::LoweredGraph lowered_;
};

}  // namespace

const TimedSchedule& TimedBody::best() const {
  const TimedSchedule& fastest = *std::ranges::min_element(tried, {}, &TimedSchedule::seconds);
  return fastest.seconds < (1 - kLeastGain) * proposed().seconds ? fastest : proposed();
}

std::vector<TimedBody> tune_bodies(const graph::GraphFile& file, const TuneOptions& options,
                                   const std::function<bool(const TimedBody&)>& done) {
  return Tuner(file, options).run(done);
}

}  // namespace megalith::engine
