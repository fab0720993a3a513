// The views of `megalith inspect`: each turns a compiler's data structure into text for people, JSON for programs, or a
// drawing for graphviz.
#pragma once

#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/graph/lower.h"
#include "megalith/task/cost.h"
#include "megalith/task/flag_waits.h"
#include "megalith/task/task_graph.h"

namespace megalith::tools {

// ---- inspect_graph.cpp ----
std::string graph_table(const graph::Graph& graph);
std::string graph_json(const graph::Graph& graph);
std::string graph_dot(const graph::Graph& graph);

// ---- inspect_tasks.cpp ----
/// A task graph, and what its file does not say in so many words.
struct TaskView {
  const task::TaskGraph& tasks;
  std::vector<std::string> labels;  // per task what it is counted as: its operator, or what its name tells
  std::vector<std::vector<int>> signallers = {};                      // per event
  std::vector<std::vector<std::pair<int, task::Wait>>> waiters = {};  // per event
  task::FlagWaits flags;
};
TaskView task_view(const task::TaskGraph& tasks, const graph::Graph* graph);

std::string tasks_summary(const TaskView& view);
std::string placement_table(const TaskView& view);
std::string placement_json(const TaskView& view);

// ---- inspect_streams.cpp ----
/// The weights that come through streams: all of them in a line, and in which order those of which nodes come; "" where
/// none do.
std::string streams_line(const task::TaskGraph& tasks);
std::string streams_table(const TaskView& view);
/// What a task takes from its worker's stream, in a line; "" or null if nothing.
std::string part_text(const task::TaskGraph& tasks, const task::Task& task);
std::string part_json(const task::TaskGraph& tasks, const task::Task& task);

// ---- inspect_one.cpp ----
/// `which` is an index, a name, or "all"; UserError with near names otherwise. Several are an array in JSON.
std::string look_at_tasks(const TaskView& view, const std::string& which, bool json);
std::string look_at_events(const TaskView& view, const std::string& which, bool json);
/// Of tensors whose values carry flags.
std::string look_at_flags(const TaskView& view, const std::string& which, bool json);

// ---- inspect_cost.cpp ----
struct OperatorCost {
  std::string op;
  int64_t nodes = 0;
  double worker_ns = 0;  // of a worker that does all of it, a task for each node
  task::Cost cost;
};
/// Bytes that must move and operations that are done in one iteration with `rows` token rows, per operator, the most
/// expensive first. What depends on a text's length counts at its longest.
std::vector<OperatorCost> operator_costs(const graph::Graph& graph, const graph::LoweredGraph& lowered,
                                         const std::string& target, int64_t rows);
std::string cost_table(const std::vector<OperatorCost>& costs, int64_t rows);
std::string cost_json(const std::vector<OperatorCost>& costs, int64_t rows);

}  // namespace megalith::tools
