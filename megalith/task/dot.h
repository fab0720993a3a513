// The task graph as a picture, for small graphs and curious people: `megalith inspect ... | dot -Tsvg`.
#pragma once

#include <string>

#include "megalith/task/task_graph.h"

namespace megalith::task {

/// Graphviz text: workers as columns with their lists, events as ellipses, waits on the iteration before dashed;
/// and, as hexagons, the values that tasks wait for by their flags.
std::string to_dot(const TaskGraph& graph);

}  // namespace megalith::task
