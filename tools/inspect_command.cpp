// megalith inspect: every stage of a model's compilation, to look at.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/printable.h"
#include "megalith/codegen/bodies_text.h"
#include "megalith/graph/schedule_text.h"
#include "megalith/graph/text.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/measured_schedules.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/dot.h"
#include "megalith/task/json.h"
#include "megalith/task/verify.h"
#include "tools/command.h"
#include "tools/inspect.h"
#include "tools/model_options.h"
#include "tools/task_graph_file.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct InspectOptions {
  ModelOptions model;
  std::string stage, task, event, flags;
  int64_t rows = 1;
  bool json = false, dot = false, why = false;

  bool looks_at_one() const { return !task.empty() || !event.empty() || !flags.empty(); }
};

std::string loops_json(const graph::LoweredGraph& lowered, const graph::Graph& graph) {
  std::vector<std::string> kernels;
  for (size_t k = 0; k < lowered.kernels.size(); ++k) {
    const graph::LoweredKernel& kernel = lowered.kernels[k];
    std::vector<std::string> nodes;
    for (size_t n = 0; n < graph.nodes().size(); ++n)
      if (lowered.kernel_of_node[n] == static_cast<int>(k)) nodes.push_back(json_quote(graph.nodes()[n].name));
    kernels.push_back(fmt::format(R"({{"name": {}, "operator": {}, "body": {}, "signature": {}, "nodes": [{}]}})",
                                  json_quote(kernel.name), json_quote(kernel.op->name),
                                  kernel.body ? json_quote(kernel.body->name) : "null", json_quote(kernel.signature),
                                  fmt::join(nodes, ", ")));
  }
  return fmt::format("[{}]\n", fmt::join(kernels, ",\n "));
}

std::string bodies_json(const std::vector<graph::LoweredKernel>& kernels) {
  std::vector<std::string> bodies;
  for (const graph::LoweredKernel& kernel : kernels)
    if (kernel.steps)
      bodies.push_back(
          fmt::format(R"({{"name": {}, "schedule": {}}})", json_quote(kernel.name), json_quote(*kernel.steps)));
  return fmt::format("[{}]\n", fmt::join(bodies, ",\n "));
}

std::string plan_json(const graph::Schedule& schedule, const graph::Graph& graph) {
  std::vector<std::string> nodes, tensors;
  const auto numbers = [](const std::map<std::string, int64_t>& of) {
    std::vector<std::string> items;
    for (const auto& [name, value] : of) items.push_back(fmt::format("{}: {}", json_quote(name), value));
    return fmt::format("{{{}}}", fmt::join(items, ", "));
  };
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::NodeSchedule& node = schedule.nodes[n];
    nodes.push_back(fmt::format(R"({{"name": {}, "operator": {}, "body": {}, "tile": {}, "pieces": {}}})",
                                json_quote(graph.nodes()[n].name), json_quote(graph.nodes()[n].op->name),
                                node.body ? json_quote(node.body->name) : "null", numbers(node.tile),
                                numbers(node.pieces)));
  }
  for (size_t t = 0; t < graph.tensors().size(); ++t)
    tensors.push_back(fmt::format(R"({{"name": {}, "layout": "{}"}})", json_quote(graph.tensors()[t].name),
                                  graph::kLayoutNames[static_cast<size_t>(schedule.layouts[t])]));
  return fmt::format("{{\"target\": {},\n\"nodes\": [{}],\n\"tensors\": [{}]}}\n", json_quote(schedule.target),
                     fmt::join(nodes, ",\n "), fmt::join(tensors, ",\n "));
}

// Which rules were applied, where, and what for; and which were not, and why nobody looked.
std::string why_table(const graph::Graph& graph) {
  std::string text;
  for (const optimize::Rule& rule : optimize::rules()) {
    const auto times = std::ranges::count(graph.rewrites(), rule.name, &graph::Rewrite::rule);
    text += fmt::format("{}: {}\n  applied {} time{}\n", rule.name, rule.equality, times, times == 1 ? "" : "s");
  }
  if (graph.rewrites().empty()) return text;
  Table table({"rule", "node", "was", "in the end", "bytes saved"});
  for (const graph::Rewrite& rewrite : graph.rewrites()) {
    const auto node = std::ranges::find(graph.nodes(), rewrite.node, &graph::Node::name);
    // What one rule made another one may have taken in.
    table.row({rewrite.rule, rewrite.node, rewrite.before, node == graph.nodes().end() ? "-" : node->op->name,
               format_bytes(rewrite.bytes_saved)});
  }
  return text + "\n" + table.text();
}

std::string why_json(const graph::Graph& graph) {
  std::vector<std::string> items;
  for (const graph::Rewrite& rewrite : graph.rewrites())
    items.push_back(fmt::format(R"({{"rule": {}, "node": {}, "before": {}, "bytes_saved": {}}})",
                                json_quote(rewrite.rule), json_quote(rewrite.node), json_quote(rewrite.before),
                                rewrite.bytes_saved));
  return fmt::format("[{}]\n", fmt::join(items, ",\n "));
}

// What one sees first of a model.
std::string overview(const ModelGraph& model, const jit::CompiledKernel& kernel) {
  const ModelConfig& config = model.config;
  double parameters = 0, bytes = 0, kv_bytes = 0;
  for (const graph::Tensor& tensor : model.graph.tensors()) {
    if (tensor.kind == graph::TensorKind::state && tensor.name.ends_with("_cache"))
      kv_bytes += static_cast<double>(tensor.bytes());
    if (tensor.kind != graph::TensorKind::constant || tensor.name.starts_with("rope.")) continue;
    parameters += static_cast<double>(tensor.num_elements());
    bytes += static_cast<double>(tensor.streamed_bytes());
  }
  Table table({"model", config.architecture});
  table.row({"parameters", fmt::format("{} in {}", format_count(parameters), format_bytes(bytes))});
  table.row({"layers", fmt::format("{} of width {}, {} query and {} key heads of {}, vocabulary {}", config.num_layers,
                                   config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim,
                                   config.vocab_size)});
  table.row({"system", fmt::format("{} of up to {} tokens, {} KV cache", plural(model.options.max_requests, "request"),
                                   model.options.max_seq_len, format_bytes(kv_bytes))});
  return table.text() + "\n" + tasks_summary(task_view(kernel.tasks, &model.graph)) + "\n" + kernel.report.table() +
         "\nlook closer with --stage graph, loops, bodies, tasks, placement, source or cost\n";
}

std::string view_tasks(const InspectOptions& options, const task::TaskGraph& tasks, const graph::Graph* graph) {
  const TaskView view = task_view(tasks, graph);
  if (!options.task.empty()) return look_at_tasks(view, options.task, options.json);
  if (!options.event.empty()) return look_at_events(view, options.event, options.json);
  if (!options.flags.empty()) return look_at_flags(view, options.flags, options.json);
  if (options.stage == "placement") return options.json ? placement_json(view) : placement_table(view);
  if (options.dot) return task::to_dot(tasks);
  return options.json ? task::to_json(tasks) : tasks_summary(view);
}

std::string view_model(const InspectOptions& options) {
  const ModelGraph model = model_graph(options.model);
  if (options.stage == "graph")
    return options.dot ? graph_dot(model.graph) : options.json ? graph_json(model.graph) : graph_table(model.graph);
  if (options.why) return options.json ? why_json(model.graph) : why_table(model.graph);
  if (options.stage == "plan" || options.stage == "loops" || options.stage == "bodies" || options.stage == "cost") {
    const graph::Schedule schedule = optimize::make_schedule(model.graph, options.model.target);
    if (options.stage == "plan")
      return options.json ? plan_json(schedule, model.graph) : graph::print(model.graph, schedule);
    const graph::LoweredGraph lowered = graph::lower(model.graph, schedule);
    if (options.stage == "bodies") {
      const jit::KernelCache cache = jit::KernelCache::from_environment();
      const jit::MeasuredSchedules measured(cache, options.model.target);
      const auto kernels = codegen::with_schedules(schedule.target, measured.take(lowered.kernels));
      return options.json ? bodies_json(kernels) : codegen::print_schedules(kernels, model.graph.name());
    }
    if (options.stage == "loops")
      return options.json ? loops_json(lowered, model.graph) : graph::print(model.graph, lowered);
    const std::vector<OperatorCost> costs = operator_costs(model.graph, lowered, options.model.target, options.rows);
    return options.json ? cost_json(costs, options.rows) : cost_table(costs, options.rows);
  }
  jit::CompileOptions compile_options{
      .target = options.model.target, .num_workers = options.model.workers(), .plan_only = true};
  const jit::CompiledKernel kernel = jit::compile(model.graph, compile_options);
  if (options.stage == "source")
    return options.json ? fmt::format("{{\"source\": {}}}\n", json_quote(kernel.source)) : kernel.source;
  if (options.stage.empty() && !options.looks_at_one() && !options.json && !options.dot) return overview(model, kernel);
  return view_tasks(options, kernel.tasks, &model.graph);
}

// Names of a file must not look like lines of ours.
void make_printable(task::TaskGraph& tasks) {
  tasks.name = printable_line(tasks.name);
  for (task::Task& task : tasks.tasks) task.name = printable_line(task.name);
  for (task::Event& event : tasks.events) event.name = printable_line(event.name);
  for (task::Buffer& buffer : tasks.buffers) buffer.name = printable_line(buffer.name);
}

// A task graph's file has its tasks and nothing else.
std::string view_file(const InspectOptions& options, const std::string& path) {
  if (!options.stage.empty() && options.stage != "tasks" && options.stage != "placement")
    throw UsageError{fmt::format("{} is a task graph: --stage is tasks or placement, not {}", path, options.stage)};
  task::TaskGraph tasks = read_task_graph(path);
  if (!options.json) make_printable(tasks);
  // The views follow indices; what is wrong beyond that may be looked at.
  for (const task::Finding& finding : task::verify(tasks).findings)
    MEGALITH_CHECK(finding.kind != task::FindingKind::structure, "{}: {}", path, finding.message);
  return view_tasks(options, tasks, nullptr);
}

// Models are folders.
bool is_task_graph(const std::string& path) {
  std::error_code unreadable;
  return path == "-" || path.ends_with(".json") ||
         (std::filesystem::exists(path, unreadable) && !std::filesystem::is_directory(path, unreadable));
}

int run_inspect(InspectOptions options) {
  const std::string model = options.model.folder();
  const bool one = options.looks_at_one();
  if (one && !options.stage.empty() && options.stage != "tasks")
    throw UsageError{fmt::format("{} at --stage tasks, not {}",
                                 options.flags.empty() ? "--task and --event look" : "--flags looks", options.stage)};
  if (!options.task.empty() && !options.event.empty()) throw UsageError{"--task or --event, not both"};
  if (!options.flags.empty() && (!options.task.empty() || !options.event.empty()))
    throw UsageError{"--flags stands alone: leave --task and --event out"};
  if (options.why && (one || !options.stage.empty() || options.dot || is_task_graph(model)))
    throw UsageError{"--why looks at a model, and at nothing else at the same time"};
  if (options.json && options.dot) throw UsageError{"--json or --dot, not both"};
  if (options.dot && (one || (!options.stage.empty() && options.stage != "graph" && options.stage != "tasks")))
    throw UsageError{"--dot draws --stage graph or tasks"};
  const std::string view = is_task_graph(model) ? view_file(options, model) : view_model(options);
  print(options.json ? view : printable(view));  // JSON escapes what has to be
  return kExitOk;
}

Action declare_inspect(Arguments& arguments) {
  auto options = std::make_shared<InspectOptions>();
  arguments.choice("--stage", options->stage,
                   {"graph", "plan", "loops", "bodies", "tasks", "placement", "source", "cost"},
                   "what to look at (an overview)");
  arguments.text("--task", options->task, "N|NAME|all",
                 "a task: what it touches, what it waits for, by events and by flags, and whom it signals");
  arguments.text("--event", options->event, "N|NAME|all", "an event: who signals it, who waits for it");
  arguments.text("--flags", options->flags, "N|NAME|all",
                 "a tensor whose values carry flags (on a GPU): who writes it, who waits for it");
  arguments.integer("--rows", options->rows, "tokens of the batch that --stage cost counts for (1, a decode step)", 1,
                    4096);
  arguments.flag("--why", options->why, "which rules of fusion were applied, where, and what that saves");
  arguments.flag("--json", options->json, "JSON; of --stage tasks, the file that verify reads");
  arguments.flag("--dot", options->dot, "a drawing for graphviz, of --stage graph or tasks");
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return run_inspect(*options); };
}

}  // namespace

Command inspect_command() {
  return {"inspect", "look at the stages of a model's compilation, or at a task graph's file",
          "megalith inspect models/storyteller --stage tasks --task 12", declare_inspect};
}

}  // namespace megalith::tools
