#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <span>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/model/near_names.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using task::Memory;
using task::Task;
using task::TaskGraph;
using task::Wait;

namespace {

// Names have ranges: "layer.0.q" and "layer.0.q[n=0:128]" are far from "layer.0.q[n=0:128,t=0:192]" in letters, but it
// is what somebody means who types them.
std::string near_or_longer_names(std::string_view wanted, const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (const std::string near = near_names(wanted, names); !near.empty()) return near;
  if (wanted.ends_with(']')) wanted.remove_suffix(1);
  std::vector<std::string> longer;
  for (const std::string& name : names)
    if (name.starts_with(wanted) && longer.size() < kShown) longer.push_back(fmt::format("\"{}\"", name));
  return longer.empty() ? "" : fmt::format(" (near: {})", fmt::join(longer, ", "));
}

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
  throw UserError(fmt::format("there is no {} \"{}\"{}", kind, which, near_or_longer_names(which, names)));
}

// "all" or one of them.
std::vector<int> find_indices(const std::string& kind, const std::string& which, size_t count,
                              const std::function<const std::string&(size_t)>& name_of) {
  if (which != "all") return {find_index(kind, which, count, name_of)};
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string look_at(const std::vector<int>& indices, const std::string& which, bool json,
                    const std::function<std::string(int)>& text_of) {
  std::vector<std::string> texts;
  for (const int index : indices) texts.push_back(text_of(index));
  if (!json || which != "all") return fmt::format("{}", fmt::join(texts, "\n"));
  return fmt::format("[\n{}]\n", fmt::join(texts, ",\n"));
}

const std::vector<int>& signallers(const TaskView& view, int event) {
  return view.signallers[static_cast<size_t>(event)];
}
const std::vector<std::pair<int, Wait>>& waiters(const TaskView& view, int event) {
  return view.waiters[static_cast<size_t>(event)];
}

const Task& task_at(const TaskGraph& tasks, int task) { return tasks.tasks[static_cast<size_t>(task)]; }
const task::Event& event_at(const TaskGraph& tasks, int event) { return tasks.events[static_cast<size_t>(event)]; }

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
    table.row({"  " + task::region_text(tasks, region.buffer, region.box),
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

// The part of an exchange that a task writes.
std::string written_text(const TaskGraph& tasks, int task, int buffer) {
  std::vector<std::string> texts;
  for (const task::Region& region : task_at(tasks, task).writes)
    if (region.buffer == buffer) texts.push_back(task::region_text(tasks, buffer, region.box));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string flags_text(const TaskView& view, int index) {
  const TaskGraph& tasks = view.tasks;
  std::string text;
  for (const int number : view.flags.waits(index)) {
    const task::FlaggedRegion& region = view.flags.regions()[static_cast<size_t>(number)];
    text += fmt::format("waits for flags of {}, written by\n", task::region_text(tasks, region.buffer, region.box));
    for (const int writer : region.writers)
      text += fmt::format("    {} {} (node {}, worker {}): {}\n", writer, task_at(tasks, writer).name,
                          task_at(tasks, writer).node, task_at(tasks, writer).worker,
                          written_text(tasks, writer, region.buffer));
  }
  for (const int number : view.flags.signals(index)) {
    const task::FlaggedRegion& region = view.flags.regions()[static_cast<size_t>(number)];
    text += fmt::format("signals by flags in {} what waits for {}\n", written_text(tasks, index, region.buffer),
                        task::region_text(tasks, region.buffer, region.box));
    for (const int reader : region.readers) text += task_line(tasks, reader);
  }
  return text;
}

std::string flagged_json(const TaskGraph& tasks, const task::FlaggedRegion& region, const std::string& rest) {
  return fmt::format(R"({{"buffer": {}, "lo": [{}], "hi": [{}], {}}})",
                     json_quote(tasks.buffers[static_cast<size_t>(region.buffer)].name), fmt::join(region.box.lo, ", "),
                     fmt::join(region.box.hi, ", "), rest);
}

// `list` is "written_by" or "read_by".
std::string flags_json(const TaskView& view, std::span<const int> numbers, const char* list,
                       std::vector<int> task::FlaggedRegion::*tasks) {
  std::vector<std::string> items;
  for (const int number : numbers) {
    const task::FlaggedRegion& region = view.flags.regions()[static_cast<size_t>(number)];
    items.push_back(
        flagged_json(view.tasks, region, fmt::format(R"("{}": [{}])", list, fmt::join(region.*tasks, ", "))));
  }
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
                                fmt::join(signallers(view, wait.event), ", ")));
  for (int signal : task.signals) {
    std::vector<int> waiting;
    for (const auto& [waiter, wait] : waiters(view, signal)) waiting.push_back(waiter);
    signals.push_back(fmt::format(R"({{"event": {}, "name": {}, "waited_for_by": [{}]}})", signal,
                                  json_quote(event_at(tasks, signal).name), fmt::join(waiting, ", ")));
  }
  return fmt::format(
      "{{\"task\": {}, \"name\": {}, \"operator\": {}, \"worker\": {}, \"cost_ns\": {:.1f}, \"tile\": {{{}}},\n"
      " \"reads\": {},\n \"writes\": {},\n \"waits\": [{}],\n \"signals\": [{}],\n \"flag_waits\": {},\n "
      "\"flag_signals\": {},\n \"stream\": {}}}\n",
      index, json_quote(task.name), json_quote(view.labels[static_cast<size_t>(index)]), task.worker, task.cost_ns,
      fmt::join(tile, ", "), regions_json(tasks, task.reads), regions_json(tasks, task.writes), fmt::join(waits, ", "),
      fmt::join(signals, ", "), flags_json(view, view.flags.waits(index), "written_by", &task::FlaggedRegion::writers),
      flags_json(view, view.flags.signals(index), "read_by", &task::FlaggedRegion::readers), part_json(tasks, task));
}

std::string one_task(const TaskView& view, int index, bool json) {
  if (json) return task_json(view, index);
  const TaskGraph& tasks = view.tasks;
  const Task& task = task_at(tasks, index);
  std::string text = fmt::format("task {}: {}\n", index, task.name);
  text += fmt::format("operator {}, cost {}, {}\n", view.labels[static_cast<size_t>(index)],
                      format_ms(task.cost_ns / 1e6), place_text(tasks, index));
  text += regions_text(tasks, "reads", task.reads) + regions_text(tasks, "writes", task.writes);
  text += part_text(tasks, task);
  text += task.waits.empty() ? "waits for no event\n" : "waits for\n";
  for (const Wait& wait : task.waits) {
    text +=
        fmt::format("  event {} {}: {}, from\n", wait.event, event_at(tasks, wait.event).name, wait_text(tasks, wait));
    for (int signaller : signallers(view, wait.event)) text += task_line(tasks, signaller);
  }
  text += task.signals.empty() ? "signals no event\n" : "signals\n";
  for (int signal : task.signals) {
    text += fmt::format("  event {} {}, waited for by\n", signal, event_at(tasks, signal).name);
    for (const auto& [waiter, wait] : waiters(view, signal)) text += task_line(tasks, waiter);
    if (tasks.gate == signal) text += "    every worker, before its next iteration\n";
  }
  return text + flags_text(view, index);
}

std::string one_event(const TaskView& view, int index, bool json) {
  const TaskGraph& tasks = view.tasks;
  const task::Event& event = event_at(tasks, index);
  if (json) {
    std::vector<std::string> waits;
    for (const auto& [waiter, wait] : waiters(view, index))
      waits.push_back(fmt::format(R"({{"task": {}, "count": {}, "lag": {}}})", waiter, wait.count, wait.lag));
    return fmt::format(
        "{{\"event\": {}, \"name\": {}, \"arrivals\": {}, \"gate\": {}, \"signalled_by\": [{}], \"waits\": [{}]}}\n",
        index, json_quote(event.name), event.arrivals, tasks.gate == index, fmt::join(signallers(view, index), ", "),
        fmt::join(waits, ", "));
  }
  std::string text =
      fmt::format("event {}: {}, {} an iteration\nsignalled by\n", index, event.name, plural(event.arrivals, "signal"));
  for (int signaller : signallers(view, index)) text += task_line(tasks, signaller);
  text += "waited for by\n";
  for (const auto& [waiter, wait] : waiters(view, index))
    text += fmt::format("  {}:\n", wait_text(tasks, wait)) + task_line(tasks, waiter);
  if (tasks.gate == index) text += "    every worker, before its next iteration\n";
  return text;
}

// The exchanges, which are the tensors that have flags.
std::vector<int> flagged_buffers(const TaskGraph& tasks) {
  std::vector<int> buffers;
  for (size_t b = 0; b < tasks.buffers.size(); ++b)
    if (tasks.buffers[b].memory == Memory::exchange) buffers.push_back(static_cast<int>(b));
  return buffers;
}

std::string one_flagged(const TaskView& view, int buffer, bool json) {
  const TaskGraph& tasks = view.tasks;
  const task::Buffer& of = tasks.buffers[static_cast<size_t>(buffer)];
  std::vector<std::string> writers, regions;
  for (size_t t = 0; t < tasks.tasks.size(); ++t)
    for (const task::Region& region : tasks.tasks[t].writes)
      if (region.buffer == buffer)
        writers.push_back(json ? fmt::format(R"({{"task": {}, "lo": [{}], "hi": [{}]}})", t,
                                             fmt::join(region.box.lo, ", "), fmt::join(region.box.hi, ", "))
                               : fmt::format("    {} {} (worker {}): {}\n", t, tasks.tasks[t].name,
                                             tasks.tasks[t].worker, task::region_text(tasks, buffer, region.box)));
  for (const task::FlaggedRegion& region : view.flags.regions()) {
    if (region.buffer != buffer) continue;
    if (json) {
      regions.push_back(flagged_json(tasks, region,
                                     fmt::format(R"("written_by": [{}], "read_by": [{}])",
                                                 fmt::join(region.writers, ", "), fmt::join(region.readers, ", "))));
      continue;
    }
    std::string text = fmt::format("waited for, {}, by\n", task::region_text(tasks, buffer, region.box));
    for (const int reader : region.readers) text += task_line(tasks, reader);
    regions.push_back(std::move(text));
  }
  if (json)
    return fmt::format(
        "{{\"buffer\": {}, \"name\": {}, \"dtype\": \"{}\", \"shape\": [{}], \"written_by\": [{}],\n \"waits\": "
        "[{}]}}\n",
        buffer, json_quote(of.name), dtype_name(of.dtype), fmt::join(of.shape, ", "), fmt::join(writers, ", "),
        fmt::join(regions, ",\n "));
  return fmt::format("tensor {}: {}, {} [{}], each value with its flag\nwritten by\n{}{}", buffer, of.name,
                     dtype_name(of.dtype), fmt::join(of.shape, ", "), fmt::join(writers, ""), fmt::join(regions, ""));
}

}  // namespace

std::string look_at_flags(const TaskView& view, const std::string& which, bool json) {
  const TaskGraph& tasks = view.tasks;
  const std::vector<int> flagged = flagged_buffers(tasks);
  if (which == "all") return look_at(flagged, which, json, [&](int buffer) { return one_flagged(view, buffer, json); });
  const auto name_of = [&](size_t b) -> const std::string& { return tasks.buffers[b].name; };
  const int buffer = find_index("tensor", which, tasks.buffers.size(), name_of);
  MEGALITH_CHECK(std::ranges::find(flagged, buffer) != flagged.end(), "the values of tensor \"{}\" carry no flags; {}",
                 name_of(static_cast<size_t>(buffer)),
                 flagged.empty() ? "none of this graph do (on a GPU those of small activations do)"
                                 : fmt::format("those of {} do, see --flags all",
                                               plural(static_cast<int64_t>(flagged.size()), "tensor")));
  return one_flagged(view, buffer, json);
}

std::string look_at_tasks(const TaskView& view, const std::string& which, bool json) {
  const auto name_of = [&](size_t i) -> const std::string& { return view.tasks.tasks[i].name; };
  return look_at(find_indices("task", which, view.tasks.tasks.size(), name_of), which, json,
                 [&](int index) { return one_task(view, index, json); });
}

std::string look_at_events(const TaskView& view, const std::string& which, bool json) {
  const auto name_of = [&](size_t i) -> const std::string& { return view.tasks.events[i].name; };
  return look_at(find_indices("event", which, view.tasks.events.size(), name_of), which, json,
                 [&](int index) { return one_event(view, index, json); });
}

}  // namespace megalith::tools
