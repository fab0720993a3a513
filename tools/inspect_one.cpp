#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "megalith/base/error.h"
#include "megalith/model/json.h"
#include "megalith/model/near_names.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using task::Memory;
using task::Task;
using task::TaskGraph;
using task::Wait;

namespace {

int find_index(const std::string& kind, const std::string& which, size_t count,
               const std::function<const std::string&(size_t)>& name_of) {
  int index = 0;
  auto [rest, code] = std::from_chars(which.data(), which.data() + which.size(), index);
  if (code == std::errc() && rest == which.data() + which.size()) {
    MEGALITH_CHECK(index >= 0 && index < static_cast<int>(count), "there is no {} {}: the graph has {}", kind, index,
                   count == 0 ? "none" : fmt::format("0 to {}", count - 1));
    return index;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    if (name_of(i) == which) return static_cast<int>(i);
    names.push_back(name_of(i));
  }
  throw UserError(fmt::format("there is no {} \"{}\"{}", kind, which, near_names(which, names)));
}

std::vector<int> signallers(const TaskGraph& tasks, int event) {
  std::vector<int> found;
  for (size_t t = 0; t < tasks.tasks.size(); ++t)
    for (int signal : tasks.tasks[t].signals)
      if (signal == event) found.push_back(static_cast<int>(t));
  return found;
}

std::vector<std::pair<int, Wait>> waiters(const TaskGraph& tasks, int event) {
  std::vector<std::pair<int, Wait>> found;
  for (size_t t = 0; t < tasks.tasks.size(); ++t)
    for (const Wait& wait : tasks.tasks[t].waits)
      if (wait.event == event) found.emplace_back(static_cast<int>(t), wait);
  return found;
}

const Task& task_at(const TaskGraph& tasks, int task) { return tasks.tasks[static_cast<size_t>(task)]; }
const task::Event& event_at(const TaskGraph& tasks, int event) { return tasks.events[static_cast<size_t>(event)]; }

// "layer.0.q[0:1, 0:64]".
std::string region_text(const TaskGraph& tasks, const task::Region& region) {
  std::vector<std::string> spans;
  for (size_t d = 0; d < region.box.lo.size(); ++d)
    spans.push_back(fmt::format("{}:{}", region.box.lo[d], region.box.hi[d]));
  return fmt::format("{}[{}]", tasks.buffers[static_cast<size_t>(region.buffer)].name, fmt::join(spans, ", "));
}

std::string memory_text(const TaskGraph& tasks, const task::Region& region) {
  const task::Buffer& buffer = tasks.buffers[static_cast<size_t>(region.buffer)];
  switch (buffer.memory) {
    case Memory::arena: return fmt::format("arena at {}", buffer.offset);
    case Memory::constant: return "constant";
    case Memory::state: return "state";
    case Memory::exchange: return "exchange";
  }
  return "?";
}

std::string regions_text(const TaskGraph& tasks, const char* title, const std::vector<task::Region>& regions) {
  Table table({title, "", ""});
  for (const task::Region& region : regions)
    table.row({"  " + region_text(tasks, region),
               std::string(dtype_name(tasks.buffers[static_cast<size_t>(region.buffer)].dtype)),
               memory_text(tasks, region)});
  return table.text();
}

std::string task_line(const TaskGraph& tasks, int task) {
  return fmt::format("    {} {} (worker {})\n", task, task_at(tasks, task).name, task_at(tasks, task).worker);
}

// "worker 0 runs it as 3 of 111, after layer.0.q[n=0:128]": the order that needs no event.
std::string place_text(const TaskGraph& tasks, int index) {
  for (size_t w = 0; w < tasks.workers.size(); ++w) {
    const std::vector<int>& list = tasks.workers[w];
    const auto at = std::find(list.begin(), list.end(), index);
    if (at == list.end()) continue;
    const std::string place = fmt::format("worker {} runs it as {} of {}", w, at - list.begin() + 1, list.size());
    return at == list.begin() ? place : fmt::format("{}, after {}", place, task_at(tasks, *(at - 1)).name);
  }
  return "no worker runs it";
}

std::string wait_text(const TaskGraph& tasks, const Wait& wait) {
  return fmt::format("{} of {} signals{}", wait.count, event_at(tasks, wait.event).arrivals,
                     wait.lag ? " of the iteration before" : "");
}

std::string regions_json(const TaskGraph& tasks, const std::vector<task::Region>& regions) {
  std::vector<std::string> items;
  for (const task::Region& region : regions)
    items.push_back(fmt::format(R"({{"buffer": {}, "lo": [{}], "hi": [{}]}})",
                                json_quote(tasks.buffers[static_cast<size_t>(region.buffer)].name),
                                fmt::join(region.box.lo, ", "), fmt::join(region.box.hi, ", ")));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string task_json(const TaskView& view, int index) {
  const TaskGraph& tasks = view.tasks;
  const Task& task = task_at(tasks, index);
  std::vector<std::string> tile, waits, signals;
  for (const loop::Range& range : task.tile)
    tile.push_back(fmt::format("{}: [{}, {}]", json_quote(range.iname), range.begin, range.end));
  for (const Wait& wait : task.waits)
    waits.push_back(fmt::format(R"({{"event": {}, "name": {}, "count": {}, "lag": {}, "signalled_by": [{}]}})",
                                wait.event, json_quote(event_at(tasks, wait.event).name), wait.count, wait.lag,
                                fmt::join(signallers(tasks, wait.event), ", ")));
  for (int signal : task.signals) {
    std::vector<int> waiting;
    for (const auto& [waiter, wait] : waiters(tasks, signal)) waiting.push_back(waiter);
    signals.push_back(fmt::format(R"({{"event": {}, "name": {}, "waited_for_by": [{}]}})", signal,
                                  json_quote(event_at(tasks, signal).name), fmt::join(waiting, ", ")));
  }
  return fmt::format(
      "{{\"task\": {}, \"name\": {}, \"operator\": {}, \"worker\": {}, \"cost_ns\": {:.1f}, \"tile\": {{{}}},\n"
      " \"reads\": {},\n \"writes\": {},\n \"waits\": [{}],\n \"signals\": [{}]}}\n",
      index, json_quote(task.name), json_quote(view.labels[static_cast<size_t>(index)]), task.worker, task.cost_ns,
      fmt::join(tile, ", "), regions_json(tasks, task.reads), regions_json(tasks, task.writes), fmt::join(waits, ", "),
      fmt::join(signals, ", "));
}

}  // namespace

int find_task(const TaskGraph& tasks, const std::string& which) {
  return find_index("task", which, tasks.tasks.size(),
                    [&](size_t i) -> const std::string& { return tasks.tasks[i].name; });
}

int find_event(const TaskGraph& tasks, const std::string& which) {
  return find_index("event", which, tasks.events.size(),
                    [&](size_t i) -> const std::string& { return tasks.events[i].name; });
}

std::string one_task(const TaskView& view, int index, bool json) {
  if (json) return task_json(view, index);
  const TaskGraph& tasks = view.tasks;
  const Task& task = task_at(tasks, index);
  std::string text = fmt::format("task {}: {}\n", index, task.name);
  text += fmt::format("operator {}, cost {}, {}\n", view.labels[static_cast<size_t>(index)],
                      format_ms(task.cost_ns / 1e6), place_text(tasks, index));
  text += regions_text(tasks, "reads", task.reads) + regions_text(tasks, "writes", task.writes);
  text += task.waits.empty() ? "waits for no event\n" : "waits for\n";
  for (const Wait& wait : task.waits) {
    text +=
        fmt::format("  event {} {}: {}, from\n", wait.event, event_at(tasks, wait.event).name, wait_text(tasks, wait));
    for (int signaller : signallers(tasks, wait.event)) text += task_line(tasks, signaller);
  }
  text += task.signals.empty() ? "signals no event\n" : "signals\n";
  for (int signal : task.signals) {
    text += fmt::format("  event {} {}, waited for by\n", signal, event_at(tasks, signal).name);
    for (const auto& [waiter, wait] : waiters(tasks, signal)) text += task_line(tasks, waiter);
    if (tasks.gate == signal) text += "    every worker, before its next iteration\n";
  }
  return text;
}

std::string one_event(const TaskView& view, int index, bool json) {
  const TaskGraph& tasks = view.tasks;
  const task::Event& event = event_at(tasks, index);
  if (json) {
    std::vector<std::string> waits;
    for (const auto& [waiter, wait] : waiters(tasks, index))
      waits.push_back(fmt::format(R"({{"task": {}, "count": {}, "lag": {}}})", waiter, wait.count, wait.lag));
    return fmt::format(
        "{{\"event\": {}, \"name\": {}, \"arrivals\": {}, \"gate\": {}, \"signalled_by\": [{}], \"waits\": [{}]}}\n",
        index, json_quote(event.name), event.arrivals, tasks.gate == index, fmt::join(signallers(tasks, index), ", "),
        fmt::join(waits, ", "));
  }
  std::string text =
      fmt::format("event {}: {}, {} an iteration\nsignalled by\n", index, event.name, plural(event.arrivals, "signal"));
  for (int signaller : signallers(tasks, index)) text += task_line(tasks, signaller);
  text += "waited for by\n";
  for (const auto& [waiter, wait] : waiters(tasks, index))
    text += fmt::format("  {}:\n", wait_text(tasks, wait)) + task_line(tasks, waiter);
  if (tasks.gate == index) text += "    every worker, before its next iteration\n";
  return text;
}

}  // namespace megalith::tools
