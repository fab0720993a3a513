// The task graph as bytes, for the cache alone: no other build reads them, and they are read fifty times as fast as the
// text (task/json.h).
#pragma once

#include <string>
#include <string_view>

#include "megalith/task/task_graph.h"

namespace megalith::task {

std::string to_bytes(const TaskGraph& graph);

/// Reads what to_bytes() of the same build wrote. UserError if it is not that; a graph that reads well may still be
/// unsound: verify() says.
TaskGraph from_bytes(std::string_view bytes);

}  // namespace megalith::task
