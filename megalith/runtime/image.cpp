#include "megalith/runtime/image.h"

#include <algorithm>
#include <limits>

#include "megalith/base/error.h"

namespace megalith::runtime {

namespace {

constexpr int64_t kMaxCount = std::numeric_limits<i32>::max();  // counters are compared by signed difference

/// Per task: whether it is `target` or precedes it within one iteration, by list order and waits for all of an event.
std::vector<bool> tasks_before(const task::TaskGraph& graph, u32 target) {
  std::vector<u32> previous(graph.tasks.size(), kNone);
  for (const std::vector<int>& list : graph.workers)
    for (size_t i = 1; i < list.size(); ++i) previous[list[i]] = static_cast<u32>(list[i - 1]);
  std::vector<std::vector<u32>> signallers(graph.events.size());
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (int event : graph.tasks[t].signals) signallers[event].push_back(static_cast<u32>(t));

  std::vector<bool> before(graph.tasks.size());
  std::vector<u32> open;
  auto visit = [&](u32 task) {
    if (before[task]) return;
    before[task] = true;
    open.push_back(task);
  };
  visit(target);
  while (!open.empty()) {
    const u32 task = open.back();
    open.pop_back();
    if (previous[task] != kNone) visit(previous[task]);
    for (const task::Wait& wait : graph.tasks[task].waits) {
      if (wait.lag != 0 || wait.count != graph.events[wait.event].arrivals) continue;
      for (u32 signaller : signallers[wait.event]) visit(signaller);
      signallers[wait.event].clear();
    }
  }
  return before;
}

/// The rule that lets W4 be a plain word (protocol.h): every worker reads it before this iteration's write.
void check_stop(const task::TaskGraph& graph, u32 stop_task) {
  MEGALITH_ASSERT(graph.gate.has_value(),
                  "[image] {} has a termination flag but no gate: workers would not stop together", graph.name);
  std::vector<u32> gate_tasks;
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    if (std::ranges::count(graph.tasks[t].signals, *graph.gate)) gate_tasks.push_back(static_cast<u32>(t));
  if (stop_task == kNone) {
    MEGALITH_ASSERT(gate_tasks.size() == 1,
                    "[image] {} tasks of {} signal the gate; say which writes the termination flag", gate_tasks.size(),
                    graph.name);
    stop_task = gate_tasks[0];
  }
  MEGALITH_ASSERT(stop_task < graph.tasks.size(), "[image] stop task {} of {} tasks", stop_task, graph.tasks.size());
  const std::string& stop_name = graph.tasks[stop_task].name;

  bool gated = false;
  for (u32 gate_task : gate_tasks) gated = gated || tasks_before(graph, gate_task)[stop_task];
  MEGALITH_ASSERT(gated, "[image] task \"{}\" writes the termination flag but does not precede the gate \"{}\"",
                  stop_name, graph.events[*graph.gate].name);
  const std::vector<bool> before = tasks_before(graph, stop_task);
  for (size_t w = 0; w < graph.workers.size(); ++w) {
    const std::vector<int>& list = graph.workers[w];
    MEGALITH_ASSERT(
        list.empty() || std::ranges::any_of(list, [&](int task) { return before[task]; }),
        "[image] worker {} has no task that precedes \"{}\", so it may read the termination flag while that is "
        "written; give it one, or none at all",
        w, stop_name);
  }
}

}  // namespace

LaunchImage::LaunchImage(const task::TaskGraph& graph, ImageParts parts) : name_(graph.name) {
  const size_t num_tasks = graph.tasks.size();
  MEGALITH_ASSERT(num_tasks < kMaxCount && graph.events.size() < kMaxCount,
                  "[image] {} tasks and {} events are too many", num_tasks, graph.events.size());
  MEGALITH_ASSERT(parts.bodies.size() == num_tasks && parts.first_operands.size() == num_tasks,
                  "[image] {} has {} tasks, but there are {} bodies and {} operand indices", name_, num_tasks,
                  parts.bodies.size(), parts.first_operands.size());
  MEGALITH_ASSERT(!graph.workers.empty(), "[image] {} has no workers", name_);

  for (const task::Event& event : graph.events) {
    MEGALITH_ASSERT(event.arrivals > 0 && event.arrivals <= kMaxCount,
                    "[image] event \"{}\" has {} arrivals, want 1 to {}", event.name, event.arrivals, kMaxCount);
    event_names_.push_back(event.name);
    event_arrivals_.push_back(static_cast<u32>(event.arrivals));
  }
  task_workers_.assign(num_tasks, kNone);
  list_begin_.push_back(0);
  for (size_t w = 0; w < graph.workers.size(); ++w) {
    for (int task : graph.workers[w]) {
      MEGALITH_ASSERT(task >= 0 && static_cast<size_t>(task) < num_tasks, "[image] worker {} lists task {} of {} tasks",
                      w, task, num_tasks);
      MEGALITH_ASSERT(task_workers_[task] == kNone, "[image] task \"{}\" is listed twice, by workers {} and {}",
                      graph.tasks[task].name, task_workers_[task], w);
      task_workers_[task] = static_cast<u32>(w);
      list_.push_back(static_cast<u32>(task));
    }
    list_begin_.push_back(static_cast<u32>(list_.size()));
  }
  for (size_t t = 0; t < num_tasks; ++t) add_task(graph, static_cast<u32>(t), parts);
  if (graph.gate)
    MEGALITH_ASSERT(*graph.gate >= 0 && *graph.gate < static_cast<int>(graph.events.size()),
                    "[image] the gate is event {} of {}", *graph.gate, graph.events.size());
  if (parts.stop != nullptr) check_stop(graph, parts.stop_task);

  operands_ = std::move(parts.operands);
  flags_ = FlagPlaces(graph, parts.exchanges);
  checks_ = std::move(parts.checks);
  node_texts_ = std::move(parts.nodes);
  events_.resize(graph.events.size());
  status_.resize(graph.workers.size());
  control_ = std::make_unique<Control>();
  // Whole pages, small ones unless a worker fills a huge one: each is the worker's own, near to it because it touches it
  // first, and no cache line is shared that the prefetcher pairs.
  const bool fills_huge_pages = parts.scratch_bytes >= static_cast<u64>(kHugePageBytes);
  const u64 page = fills_huge_pages ? static_cast<u64>(kHugePageBytes) : 4096;
  const u64 scratch_stride = (parts.scratch_bytes + page - 1) / page * page;
  scratch_ =
      Mapping(static_cast<int64_t>(scratch_stride * graph.workers.size()), "scratch of " + name_, fills_huge_pages);

  launch_.tasks = tasks_.data();
  launch_.waits = waits_.data();
  launch_.signals = signals_.data();
  launch_.list = list_.data();
  launch_.list_begin = list_begin_.data();
  launch_.operands = operands_.data();
  launch_.events = events_.data();
  launch_.status = status_.data();
  launch_.control = control_.get();
  launch_.scratch = reinterpret_cast<u8*>(scratch_.data());
  launch_.scratch_bytes = scratch_stride;
  launch_.num_workers = static_cast<u32>(graph.workers.size());
  launch_.gate = graph.gate ? static_cast<u32>(*graph.gate) : kNone;
  launch_.gate_arrivals = graph.gate ? event_arrivals_[*graph.gate] : 0;
  launch_.stop = parts.stop;
  launch_.sizes = parts.sizes;
  set_num_iterations(parts.num_iterations);
  reset();
}

void LaunchImage::add_task(const task::TaskGraph& graph, u32 index, const ImageParts& parts) {
  const task::Task& task = graph.tasks[index];
  MEGALITH_ASSERT(task_workers_[index] != kNone, "[image] task \"{}\" is on no worker's list", task.name);
  MEGALITH_ASSERT(task.tile.size() <= kMaxAxes, "[image] task \"{}\" is tiled along {} axes, at most {} are possible",
                  task.name, task.tile.size(), kMaxAxes);
  MEGALITH_ASSERT(parts.first_operands[index] <= parts.operands.size(),
                  "[image] task \"{}\" has operands from {} on, of {}", task.name, parts.first_operands[index],
                  parts.operands.size());
  TaskRecord record{};
  record.body = parts.bodies[index];
  record.first_operand = parts.first_operands[index];
  if (!parts.num_operands.empty()) record.num_operands = parts.num_operands.at(index);
  if (!parts.first_chunks.empty()) record.first_chunk = parts.first_chunks.at(index);
  record.first_wait = static_cast<u32>(waits_.size());
  record.num_waits = static_cast<u32>(task.waits.size());
  record.first_signal = static_cast<u32>(signals_.size());
  record.num_signals = static_cast<u32>(task.signals.size());
  for (size_t axis = 0; axis < task.tile.size(); ++axis) {
    const loop::Range& range = task.tile[axis];
    MEGALITH_ASSERT(range.begin >= -kMaxCount && range.begin <= range.end && range.end <= kMaxCount,
                    "[image] task \"{}\" covers {} from {} to {}, which is no range of 32 bits", task.name, range.iname,
                    range.begin, range.end);
    record.begin[axis] = static_cast<i32>(range.begin);
    record.end[axis] = static_cast<i32>(range.end);
  }
  tasks_.push_back(record);
  task_names_.push_back(task.name);
  task_nodes_.push_back(task.node);

  auto check_event = [&](int event, const char* verb) {
    MEGALITH_ASSERT(event >= 0 && static_cast<size_t>(event) < event_names_.size(),
                    "[image] task \"{}\" {} event {} of {}", task.name, verb, event, event_names_.size());
  };
  for (const task::Wait& wait : task.waits) {
    check_event(wait.event, "waits for");
    const u32 arrivals = event_arrivals_[wait.event];
    MEGALITH_ASSERT(wait.count > 0 && wait.count <= arrivals,
                    "[image] task \"{}\" waits for {} arrivals of event \"{}\", which gets {}", task.name, wait.count,
                    event_names_[wait.event], arrivals);
    MEGALITH_ASSERT(wait.lag == 0 || wait.lag == 1,
                    "[image] task \"{}\" waits for event \"{}\" with lag {}, want 0 or 1", task.name,
                    event_names_[wait.event], wait.lag);
    waits_.push_back(
        {static_cast<u32>(wait.event), arrivals, static_cast<u32>(wait.count), static_cast<u32>(wait.lag)});
  }
  for (int event : task.signals) {
    check_event(event, "signals");
    signals_.push_back(static_cast<u32>(event));
  }
}

void LaunchImage::reset(u32 first_iteration) {
  for (size_t e = 0; e < events_.size(); ++e) events_[e] = {kOneArrival * (event_arrivals_[e] * first_iteration)};
  std::ranges::fill(status_, WorkerStatus{});
  *control_ = Control{};
  launch_.first_iteration = first_iteration;
}

void LaunchImage::set_num_iterations(u32 num_iterations) {
  MEGALITH_ASSERT(num_iterations > 0 || launch_.stop != nullptr,
                  "[image] {} would never end: give it a number of iterations or a termination flag", name_);
  launch_.num_iterations = num_iterations;
}

u32 LaunchImage::task_position(u32 task) const {
  const auto begin = list_.begin() + list_begin_[task_workers_[task]];
  return static_cast<u32>(std::find(begin, list_.end(), task) - begin);
}

codegen::CheckText LaunchImage::check_text(const Fault& fault) const {
  const u32 body = fault.task < tasks_.size() ? tasks_[fault.task].body : kNone;
  if (body >= checks_.size() || fault.check >= checks_[body].size()) return {};
  return checks_[body][fault.check];
}

std::string LaunchImage::node_text(u32 task) const {
  const int node = task < task_nodes_.size() ? task_nodes_[task] : -1;
  return node >= 0 && static_cast<size_t>(node) < node_texts_.size() ? node_texts_[static_cast<size_t>(node)] : "";
}

std::vector<u32> LaunchImage::event_signallers(u32 event) const {
  std::vector<u32> result;
  for (u32 t = 0; t < num_tasks(); ++t)
    for (u32 s = 0; s < tasks_[t].num_signals; ++s)
      if (signals_[tasks_[t].first_signal + s] == event) result.push_back(t);
  return result;
}

}  // namespace megalith::runtime
