// A schedule as text, the artifact plan.txt: a line for each node that says what runs it and how it is cut, and one for
// each tensor that does not lie row by row.
#pragma once

#include <string>

#include "megalith/graph/schedule.h"

namespace megalith::graph {

std::string print(const Graph& graph, const Schedule& schedule);

/// Reads it back. Lines may be edited, and those of tensors left out: they lie row by row then. UserError naming the line
/// for what it does not know, and for a node that is missing or stands elsewhere. Whether it is any good is for
/// optimize::check_schedule() to say.
Schedule parse_schedule(const std::string& text, const Graph& graph, const std::string& target);

}  // namespace megalith::graph
