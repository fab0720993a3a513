// A task graph that somebody kept in a file, or pipes in.
#pragma once

#include <string>

#include "megalith/task/task_graph.h"

namespace megalith::tools {

/// `path` is a file, a pipe, or - for stdin. UserError naming it if that is no task graph.
task::TaskGraph read_task_graph(const std::string& path);

}  // namespace megalith::tools
