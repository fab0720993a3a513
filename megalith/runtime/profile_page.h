// A profile as one HTML page that needs nothing else: a timeline of all workers to zoom into, the rate at which weights
// are read, and where the time goes by operator and by event.
#pragma once

#include <string>
#include <vector>

#include "megalith/runtime/profile_rings.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

/// What the page wants to know of a graph's node.
struct ProfiledNode {
  std::string op;         // its operator's name
  bool looks_up = false;  // data say which rows it reads: its weights do not count as read
};

/// The newest iterations whose records are all there, `most_records` records of them at most, but one at least. Times
/// are in nanoseconds since the first. UserError if no iteration is there as a whole.
std::string profile_page(const Profile& profile, const task::TaskGraph& graph, const std::vector<ProfiledNode>& nodes,
                         size_t most_records = 200000);

}  // namespace megalith::runtime
