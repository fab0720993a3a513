#include "megalith/jit/compile.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/base/json_reason.h"
#include "megalith/base/log.h"
#include "megalith/base/threads.h"
#include "megalith/codegen/bodies_text.h"
#include "megalith/codegen/emit.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/schedule_text.h"
#include "megalith/graph/text.h"
#include "megalith/jit/cuda/nvrtc.h"
#include "megalith/jit/measured_schedules.h"
#include "megalith/jit/plan_cache.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/bytes.h"
#include "megalith/task/json.h"
#include "megalith/task/match.h"
#include "megalith/task/partition.h"
#include "megalith/task/plan.h"
#include "megalith/task/streams.h"
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

// To order tasks takes, of each, how far it knows every worker to be: a gigabyte here, and some seconds. Qwen3-8B on a
// GPU of 132 workers has 3 million.
constexpr int64_t kMaxClocks = int64_t{1} << 28;

// Of a block, 0 on a CPU.
int64_t shared_bytes(const CompileOptions& options) {
  return is_cuda_target(options.target) ? machine::gpu_of_target(options.target).shared_bytes : 0;
}

task::TaskGraph plan_tasks(const graph::Graph& graph, const graph::LoweredGraph& lowered,
                           const CompileOptions& options) {
  task::Partitioned partitioned =
      task::partition(graph, lowered, options.num_workers, machine::worker_rates(options.target));
  const auto num_tasks = static_cast<int64_t>(partitioned.tasks.size());
  MEGALITH_CHECK(num_tasks * options.num_workers <= kMaxClocks,
                 "\"{}\" comes to {} tasks for {} workers, and a plan is made and proved for up to {} of their "
                 "products: use at most {} workers (-t), or a model with fewer layers",
                 graph.name(), num_tasks, options.num_workers, kMaxClocks, kMaxClocks / num_tasks);
  const std::optional<int> gate = gate_task(graph, partitioned);
  task::TaskGraph tasks = task::plan(std::move(partitioned.tasks), std::move(partitioned.buffers),
                                     {.name = graph.name(),
                                      .num_workers = options.num_workers,
                                      .gate_task = gate,
                                      .warm_caches = !is_cuda_target(options.target),
                                      .reuse_arena = options.reuse_arena});
  task::add_streams(tasks, graph, lowered.schedule, shared_bytes(options));
  return tasks;
}

void check_tasks(const task::TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule,
                 const CompileOptions& options) {
  task::check_matches(tasks, graph, schedule, options.num_workers);
  const task::VerifyResult result = task::verify(tasks);
  if (!result.ok()) throw UserError(fmt::format("the task graph is not sound: {}", result.findings.front().message));
  task::check_streams(tasks, graph, schedule, task::streams_are_n_parallel(graph, schedule, shared_bytes(options)));
}

// An edited source may leave the ring another length than the one that the streams were made for.
void check_ring(const CompiledKernel& kernel, const graph::Graph& graph) {
  const bool n_parallel = stream::is_n_parallel(kernel.ring_slots());
  MEGALITH_CHECK(
      kernel.tasks.streams == task::weight_streams(graph, kernel.schedule, n_parallel),
      "[jit] the source's workspace of {} bytes leaves a ring of {} weight tiles, and the streams of weights "
      "come in an order for {} {}: leave area_bytes of kWorkerConfig as it was emitted",
      kernel.area_bytes, kernel.ring_slots(), n_parallel ? "fewer than" : "at least", stream::kMaxParts + 1);
}

void check_operands(bool are_those) {
  MEGALITH_CHECK(
      are_those,
      "[jit] the kernel that MEGALITH_OVERRIDE brings was written for other operands than this graph's: take "
      "one that was compiled with the same model and options");
}

// What a source or a library says of itself, which may have been edited.
void take_info(CompiledKernel& kernel, const std::string& kernel_info) {
  constexpr int64_t kMax = int64_t{1} << 40;
  try {
    const auto info = nlohmann::json::parse(kernel_info);
    auto number = [&](const char* name) {
      const auto& value = info.at(name);
      MEGALITH_CHECK(value.is_number_integer() && value >= 0 && value <= kMax,
                     "its megalith_kernel_info has {} = {}, want 0 to {}", name, value.dump(), kMax);
      return value.get<int64_t>();
    };
    kernel.scratch_bytes = number("scratch_bytes");
    kernel.area_bytes = number("area_bytes");
    kernel.stream_rows = number("stream_rows");
    if (info.contains("scale_bytes")) kernel.scale_bytes = number("scale_bytes");
    check_operands(kernel.operands.empty() || info.at("operands").get<std::string>() == kernel.operands);
    for (const auto& of_body : info.value("checks", nlohmann::json::array())) {
      std::vector<codegen::CheckText>& texts = kernel.checks.emplace_back();
      for (const auto& text : of_body) texts.push_back({text.at(0).get<std::string>(), text.at(1).get<std::string>()});
    }
  } catch (const nlohmann::json::exception& error) {
    throw UserError(
        fmt::format("[jit] the kernel's megalith_kernel_info is not what was written: {}", json_reason(error.what())));
  }
}

// Of the operators that the graph uses: those that a user declared are not part of our own build.
std::string definitions(const graph::Graph& graph) {
  std::set<const graph::Operator*> operators;
  std::string text;
  for (const graph::Node& node : graph.nodes())
    if (operators.insert(node.op).second) text += graph::definition(*node.op) + "\n";
  return text;
}

// What a plan depends on and a listing does not tell.
std::string layouts(const graph::Graph& graph) {
  std::string text;
  for (const graph::Tensor& tensor : graph.tensors())
    text +=
        fmt::format("{}{}{} ", tensor.any_layout ? "any " : "", tensor.by_load ? "by load " : "", tensor.quant_columns);
  return text;
}

// Whoever wants artifacts, or brings their own, wants every stage to run.
bool looks_at_stages(const PipelineOptions& options) {
  return !options.dump_directory.empty() || !options.override_directory.empty() || !options.keep.empty();
}

// From the graph to the source.
graph::LoweredGraph make_source(Pipeline& pipeline, const graph::Graph& graph, const CompileOptions& options,
                                const MeasuredSchedules& measured, CompiledKernel& kernel) {
  graph::LoweredGraph lowered = pipeline.stage(
      {"lower", "loops.txt"}, [&] { return graph::lower(graph, kernel.schedule); },
      [&](const graph::LoweredGraph& l) { return graph::print(graph, l); },
      [&](const std::string& text) { return graph::parse_loops(text, graph, graph::lower(graph, kernel.schedule)); },
      nullptr);
  kernel.schedule = lowered.schedule;
  const std::string& family = kernel.schedule.target;
  bool is_scheduled_by_hand = false;  // what is computed is right by how it is made
  const auto parse = [&](const std::string& text) {
    is_scheduled_by_hand = true;
    return codegen::parse_schedules(family, measured.take(lowered.kernels), text);
  };
  const std::vector<graph::LoweredKernel> kernels = pipeline.stage(
      {"distribute", "bodies.txt"},
      [&] {
        return options.bodies.empty() ? codegen::with_schedules(family, measured.take(lowered.kernels))
                                      : parse(options.bodies);
      },
      [&](const std::vector<graph::LoweredKernel>& k) { return codegen::print_schedules(k, graph.name()); }, parse,
      [&](const std::vector<graph::LoweredKernel>& k) {
        if (is_scheduled_by_hand) codegen::check_schedules(family, k);
      });
  kernel.operands = codegen::operands_hash(kernels);
  kernel.source = pipeline.stage(
      {"emit", is_cuda_target(options.target) ? "kernel.cu" : "kernel.cpp"},
      [&] { return codegen::emit(family, kernels, graph.name(), kernel.schedule.worker).text; },
      [](const std::string& text) { return text; }, [](const std::string& text) { return text; }, nullptr);
  return lowered;
}

task::TaskGraph make_tasks(Pipeline& pipeline, const graph::Graph& graph, const graph::LoweredGraph& lowered,
                           const CompileOptions& options, const graph::Schedule& schedule) {
  bool is_edited = false;  // tiles and regions of tasks made here are what they would be held against
  return pipeline.stage(
      {"partition", "tasks.json"}, [&] { return plan_tasks(graph, lowered, options); },
      [](const task::TaskGraph& tasks) { return task::to_json(tasks); },
      [&](const std::string& text) {
        is_edited = true;
        return task::from_json(text);
      },
      [&](const task::TaskGraph& tasks) {
        check_tasks(tasks, graph, schedule, options);
        if (!is_edited) return;
        task::check_tiles(tasks, graph, lowered);
        task::check_regions(tasks, graph, lowered);
      });
}

// NVRTC's work, which takes seconds and wants nothing but the source: tasks are planned and proved beside it. Where that fails
// nobody waits for it.
struct CubinAhead {
  CubinAhead(const std::string& name, const std::string& source, const std::string& architecture,
             const KernelCache& cache, const std::vector<std::string>& flags_)
      : flags(flags_),
        build(std::async([=, this] { return compile_cubin(name, source, architecture, cache, flags, &is_over); })) {}
  ~CubinAhead() { is_over.store(true); }  // what is left of `build` waits
  /// Waits for it, or throws if the user wants an end: in Python only the thread that called learns of that.
  CudaBuild get() {
    constexpr std::chrono::milliseconds kSlice(20);
    while (build.wait_for(kSlice) == std::future_status::timeout) interruption_check();
    return build.get();
  }

  std::atomic<bool> is_over = false;
  const std::vector<std::string> flags;
  std::future<CudaBuild> build;
};

// The plan from the cache; what is read is verified like anything else, but for tiles and their regions, which take
// lowering to check: nobody else can have written the entry, and the plan was checked when it was made.
void take_plan(Pipeline& pipeline, const graph::Graph& graph, const CompileOptions& options, Plan plan,
               CompiledKernel& kernel) {
  kernel.tasks = pipeline.stage(
      {"partition", "tasks.json", StageFrom::cache}, [&] { return task::from_bytes(plan.tasks); }, nullptr, nullptr,
      [&](const task::TaskGraph& tasks) { check_tasks(tasks, graph, kernel.schedule, options); });
  kernel.source = std::move(plan.source);
}

}  // namespace

CompiledKernel compile(const graph::Graph& graph, const CompileOptions& given) {
  MEGALITH_CHECK(given.target == "cpu" || is_cuda_target(given.target),
                 "there is no target \"{}\"; known are cpu, cuda and cuda:sm_90a and the like", given.target);
  CompileOptions options = given;
  if (!options.plan_only) options.target = target_with_architecture(given.target);
  Pipeline pipeline(graph.name(), options.pipeline);
  CompiledKernel kernel;
  const std::string text = pipeline.stage(
      {"build", "graph.txt"}, [&] { return graph::print(graph); }, [](const std::string& t) { return t; }, nullptr,
      nullptr);
  const std::string family = target_family(options.target);
  kernel.schedule = pipeline.stage(
      {"schedule", "plan.txt"}, [&] { return optimize::make_schedule(graph, options.target); },
      [&](const graph::Schedule& s) { return graph::print(graph, s); },
      [&](const std::string& t) { return graph::parse_schedule(t, graph, family); },
      [&](const graph::Schedule& s) { optimize::check_schedule(graph, s); });
  kernel.kernel_of_node = graph::kernel_of_node(graph, kernel.schedule);

  std::vector<std::jthread> opener;  // of NVRTC, 7 ms that pass while the plan is looked at
  if (!options.plan_only && is_cuda_target(options.target)) opener = start_helpers(1, open_nvrtc);
  const KernelCache cache = KernelCache::from_environment();
  const MeasuredSchedules measured(cache, options.target);
  const PlanCache plans(cache, fmt::format("{}\n{} workers{}\n{}\n{}\n{}\n{}\n{}", options.target, options.num_workers,
                                           options.reuse_arena ? "" : ", each buffer by itself", layouts(graph), text,
                                           definitions(graph), measured.identity(), options.bodies));
  std::optional<Plan> plan = looks_at_stages(options.pipeline) ? std::nullopt : plans.find();
  if (plan) {
    try {
      take_plan(pipeline, graph, options, std::move(*plan), kernel);
    } catch (const Error& error) {
      log_warn("the plan of {} in the cache is of no use ({}); it is made again", graph.name(), error.what());
      plans.remove();
      plan.reset();
    }
  }
  const codegen::Effort effort = looks_at_stages(options.pipeline) ? codegen::Effort::chosen : options.effort;
  const bool is_for_gpu = !options.plan_only && is_cuda_target(options.target);
  const std::string architecture = is_for_gpu ? cuda_architecture(options.target) : "";
  std::optional<CubinAhead> ahead;
  if (!plan) {
    const graph::LoweredGraph lowered = make_source(pipeline, graph, options, measured, kernel);
    if (is_for_gpu && !looks_at_stages(options.pipeline))
      ahead.emplace(graph.name(), kernel.source, architecture, cache,
                    cubin_flags(kernel.source, architecture, effort, cache));
    kernel.tasks = make_tasks(pipeline, graph, lowered, options, kernel.schedule);
    if (!looks_at_stages(options.pipeline)) plans.store(graph.name(), {task::to_bytes(kernel.tasks), kernel.source});
  }
  if (is_for_gpu) {
    const std::vector<std::string> flags =
        ahead ? ahead->flags : cubin_flags(kernel.source, architecture, effort, cache);
    kernel.is_quick = flags != codegen::cuda_compile_flags(architecture);
    kernel.cuda = build_cubin(pipeline, graph.name(), kernel.source, architecture, cache, flags,
                              ahead ? [&ahead] { return ahead->get(); } : std::function<CudaBuild()>());
    take_info(kernel, codegen::source_info(kernel.source));
    check_operands(kernel.operands.empty() ||
                   kernel.cuda.cubin.find(codegen::operands_symbol(kernel.operands)) != std::string::npos);
    check_ring(kernel, graph);
  } else if (!options.plan_only) {
    const BuildRequest request =
        without_haste({.name = graph.name(), .source = kernel.source, .effort = effort}, cache);
    kernel.is_quick = request.effort == codegen::Effort::quick;
    kernel.build = build_shared_object(pipeline, request, cache);
    take_info(kernel, kernel.build.library.kernel_info());
  }
  kernel.report = pipeline.finish();
  return kernel;
}

int CompiledKernel::ring_slots() const {
  return stream::ring_slots(machine::gpu(cuda.architecture).shared_bytes, area_bytes, stream_rows, scale_bytes);
}

}  // namespace megalith::jit
