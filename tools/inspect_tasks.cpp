#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/task/arena.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using task::Buffer;
using task::Memory;
using task::Task;
using task::TaskGraph;

namespace {

struct Row {
  std::vector<int> nodes;
  int64_t tasks = 0, waits = 0, signals = 0;
  double cost_ns = 0;
};

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string memory_lines(const TaskGraph& tasks) {
  std::map<Memory, std::pair<int64_t, int64_t>> kinds;
  int64_t without_reuse = 0;
  for (const Buffer& buffer : tasks.buffers) {
    ++kinds[buffer.memory].first;
    kinds[buffer.memory].second += buffer.bytes;
    if (buffer.memory == Memory::arena)
      without_reuse += (buffer.bytes + task::kArenaAlignment - 1) / task::kArenaAlignment * task::kArenaAlignment;
  }
  const auto [exchanges, exchange_bytes] = kinds[Memory::exchange];
  return fmt::format(
      "buffers   {} constant ({}), {} state ({}), {} in the arena{}\n"
      "arena     {}, {} without reuse\n",
      kinds[Memory::constant].first, format_bytes(kinds[Memory::constant].second), kinds[Memory::state].first,
      format_bytes(kinds[Memory::state].second), kinds[Memory::arena].first,
      exchanges > 0 ? fmt::format(", {} exchanged ({})", exchanges, format_bytes(exchange_bytes)) : "",
      format_bytes(tasks.arena_bytes), format_bytes(without_reuse));
}

std::string waits_line(const TaskGraph& tasks) {
  size_t waits = 0, carried = 0, none = 0, most = 0;
  for (const Task& task : tasks.tasks) {
    waits += task.waits.size();
    none += task.waits.empty();
    most = std::max(most, task.waits.size());
    for (const task::Wait& wait : task.waits) carried += wait.lag > 0;
  }
  const double mean = tasks.tasks.empty() ? 0 : static_cast<double>(waits) / static_cast<double>(tasks.tasks.size());
  return fmt::format("waits     {}: {:.2f} a task, at most {}; {} need none; {} for the iteration before\n", waits,
                     mean, most, plural(static_cast<int64_t>(none), "task"), carried);
}

// What travels with its flag needs no event; nothing is said where nothing does.
std::string flags_line(const TaskView& view) {
  if (view.flags.regions().empty()) return "";
  int64_t waiting = 0, alone = 0;
  for (size_t t = 0; t < view.tasks.tasks.size(); ++t) {
    if (view.flags.waits(static_cast<int>(t)).empty()) continue;
    ++waiting;
    alone += view.tasks.tasks[t].waits.empty();
  }
  return fmt::format("flags     {} for flags in data, {} of them for nothing else\n",
                     plural(waiting, "task") + (waiting == 1 ? " waits" : " wait"), alone);
}

}  // namespace

TaskView task_view(const TaskGraph& tasks, const graph::Graph* graph) {
  TaskView view{.tasks = tasks, .labels = {}, .flags = task::FlagWaits(tasks)};
  for (const Task& task : tasks.tasks)
    view.labels.push_back(graph ? graph->nodes().at(static_cast<size_t>(task.node)).op->name
                                : task::name_of_all_layers(task.name));
  view.signallers.resize(tasks.events.size());
  view.waiters.resize(tasks.events.size());
  for (size_t t = 0; t < tasks.tasks.size(); ++t) {
    for (int event : tasks.tasks[t].signals)
      view.signallers.at(static_cast<size_t>(event)).push_back(static_cast<int>(t));
    for (const task::Wait& wait : tasks.tasks[t].waits)
      view.waiters.at(static_cast<size_t>(wait.event)).emplace_back(static_cast<int>(t), wait);
  }
  return view;
}

std::string tasks_summary(const TaskView& view) {
  const TaskGraph& tasks = view.tasks;
  std::string text = fmt::format("{}: {} on {}\n", tasks.name, plural(static_cast<int64_t>(tasks.tasks.size()), "task"),
                                 plural(static_cast<int64_t>(tasks.workers.size()), "worker"));
  text += fmt::format("events    {}{}\n", tasks.events.size(),
                      tasks.gate
                          ? fmt::format("; {} ends an iteration", tasks.events[static_cast<size_t>(*tasks.gate)].name)
                          : "; none ends an iteration");
  text += waits_line(tasks) + flags_line(view) + memory_lines(tasks) + streams_line(tasks);

  std::map<std::string, Row> rows;
  double total = 0;
  for (size_t t = 0; t < tasks.tasks.size(); ++t) {
    const Task& task = tasks.tasks[t];
    Row& row = rows[view.labels[t]];
    if (row.nodes.empty() || row.nodes.back() != task.node) row.nodes.push_back(task.node);
    ++row.tasks;
    row.waits += static_cast<int64_t>(task.waits.size());
    row.signals += static_cast<int64_t>(task.signals.size());
    row.cost_ns += task.cost_ns;
    total += task.cost_ns;
  }
  std::vector<std::pair<std::string, Row>> ranked(rows.begin(), rows.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.second.cost_ns > b.second.cost_ns; });
  Table table({"operator", ">nodes", ">tasks", ">waits", ">signals", ">cost", ">share"});
  for (const auto& [label, row] : ranked)
    table.row({label, fmt::format("{}", row.nodes.size()), fmt::format("{}", row.tasks), fmt::format("{}", row.waits),
               fmt::format("{}", row.signals), format_ms(row.cost_ns / 1e6),
               fmt::format("{:.1f} %", percent(row.cost_ns, total))});
  return text + "\n" + table.text() + streams_table(view);
}

namespace {

struct WorkerShare {
  int64_t tasks = 0, constant_bytes = 0, waits = 0;
  double cost_ns = 0;
};

std::vector<WorkerShare> worker_shares(const TaskGraph& tasks) {
  std::vector<WorkerShare> shares(tasks.workers.size());
  for (size_t w = 0; w < tasks.workers.size(); ++w)
    for (int t : tasks.workers[w]) {
      const Task& task = tasks.tasks[static_cast<size_t>(t)];
      ++shares[w].tasks;
      shares[w].cost_ns += task.cost_ns;
      shares[w].waits += static_cast<int64_t>(task.waits.size());
      shares[w].constant_bytes += task::weight_bytes(tasks, task);
    }
  return shares;
}

// Largest over mean, less 1: the part of the time that the others stand idle for the busiest.
double imbalance(const std::vector<WorkerShare>& shares) {
  double sum = 0, most = 0;
  for (const WorkerShare& share : shares) sum += share.cost_ns, most = std::max(most, share.cost_ns);
  return sum > 0 ? most * static_cast<double>(shares.size()) / sum - 1 : 0;
}

}  // namespace

std::string placement_table(const TaskView& view) {
  const std::vector<WorkerShare> shares = worker_shares(view.tasks);
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0,
                                       [](double sum, const WorkerShare& share) { return sum + share.cost_ns; });
  Table table({">worker", ">tasks", ">waits", ">constants", ">cost", ">share"});
  for (size_t w = 0; w < shares.size(); ++w)
    table.row({fmt::format("{}", w), fmt::format("{}", shares[w].tasks), fmt::format("{}", shares[w].waits),
               format_bytes(shares[w].constant_bytes), format_ms(shares[w].cost_ns / 1e6),
               fmt::format("{:.2f} %", percent(shares[w].cost_ns, total))});
  return fmt::format("{}: {} on {}, the busiest has {:.2f} % more than the mean\n\n{}", view.tasks.name,
                     plural(static_cast<int64_t>(view.tasks.tasks.size()), "task"),
                     plural(static_cast<int64_t>(shares.size()), "worker"), 100 * imbalance(shares), table.text());
}

std::string placement_json(const TaskView& view) {
  const std::vector<WorkerShare> shares = worker_shares(view.tasks);
  std::vector<std::string> workers;
  for (size_t w = 0; w < shares.size(); ++w)
    workers.push_back(fmt::format(
        R"({{"tasks": {}, "waits": {}, "constant_bytes": {}, "cost_ns": {:.1f}, "list": [{}]}})", shares[w].tasks,
        shares[w].waits, shares[w].constant_bytes, shares[w].cost_ns, fmt::join(view.tasks.workers[w], ", ")));
  return fmt::format("{{\"name\": {}, \"imbalance\": {:.6f}, \"workers\": [\n {}]}}\n", json_quote(view.tasks.name),
                     imbalance(shares), fmt::join(workers, ",\n "));
}

}  // namespace megalith::tools
