// The task graph as a text: the artifact of planning, which holds everything that the verifier needs. One task, event,
// buffer and worker a line, so that two versions of it can be compared and one can be edited by hand.
#pragma once

#include <string>
#include <string_view>

#include "megalith/task/task_graph.h"

namespace megalith::task {

/// The text; docs/task-graph.md describes the format. Reading it and writing it again gives the same text.
std::string to_json(const TaskGraph& graph);

/// Reads what to_json() wrote, or somebody else: UserError naming the place ("$.tasks[3].reads[0].buffer"), what was
/// found and what was wanted. A graph that reads well may still be unsound: verify() says.
TaskGraph from_json(std::string_view text);

}  // namespace megalith::task
