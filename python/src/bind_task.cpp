#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "megalith/base/format.h"
#include "megalith/task/json.h"
#include "megalith/task/task_graph.h"
#include "python/src/bind.h"

namespace nb = nanobind;

namespace megalith::python {

using task::TaskGraph;

namespace {

std::string summary(const TaskGraph& graph) {
  size_t waits = 0;
  for (const task::Task& task : graph.tasks) waits += task.waits.size();
  return fmt::format("{}: {} tasks on {} workers, {} events, {} waits, an arena of {}", graph.name, graph.tasks.size(),
                     graph.workers.size(), graph.events.size(), waits, format_bytes(graph.arena_bytes));
}

// One line a worker: what it runs, and what that is estimated to cost.
std::string placement(const TaskGraph& graph) {
  std::string text;
  for (size_t w = 0; w < graph.workers.size(); ++w) {
    double cost_ns = 0;
    std::vector<std::string> names;
    for (const int t : graph.workers[w]) {
      cost_ns += graph.tasks[static_cast<size_t>(t)].cost_ns;
      names.push_back(graph.tasks[static_cast<size_t>(t)].name);
    }
    text += fmt::format("worker {:>3}  {:>5} tasks  {:>9.1f} us  {}\n", w, names.size(), cost_ns / 1e3,
                        fmt::join(names, " "));
  }
  return text;
}

}  // namespace

void bind_task(nb::module_& module) {
  nb::class_<task::Task>(module, "Task", "One tile of one node: what it reads and writes, whom it waits for.")
      .def_ro("name", &task::Task::name)
      .def_ro("node", &task::Task::node, "The index of the graph's node.")
      .def_ro("worker", &task::Task::worker)
      .def_ro("cost_ns", &task::Task::cost_ns, "An estimate, in nanoseconds.")
      .def_prop_ro(
          "waits",
          [](const task::Task& task) {
            std::vector<int> events;
            for (const task::Wait& wait : task.waits) events.push_back(wait.event);
            return events;
          },
          "The events that it waits for.")
      .def_ro("signals", &task::Task::signals, "The events that it signals.")
      .def("__repr__",
           [](const task::Task& task) { return fmt::format("<task {} on worker {}>", task.name, task.worker); });

  nb::class_<TaskGraph>(module, "TaskGraph", "All tasks and events of one iteration. str() sums it up.")
      .def_ro("name", &TaskGraph::name)
      .def_ro("tasks", &TaskGraph::tasks)
      .def_ro("workers", &TaskGraph::workers,
              "Per worker the indices of its tasks, in the order in which it runs them.")
      .def_prop_ro("num_events", [](const TaskGraph& graph) { return graph.events.size(); })
      .def_ro("arena_bytes", &TaskGraph::arena_bytes)
      .def("placement", &placement, "Who runs what, a line a worker.")
      .def("to_json", [](const TaskGraph& graph) { return task::to_json(graph); })
      .def("__len__", [](const TaskGraph& graph) { return graph.tasks.size(); })
      .def("__str__", &summary)
      .def("__repr__", [](const TaskGraph& graph) { return fmt::format("<task graph {}>", summary(graph)); });
}

}  // namespace megalith::python
