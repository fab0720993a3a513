// What tasks wait for without an event: values of exchanges, which carry their flag in the data (task_graph.h). A task
// graph says it in its regions only, so whoever shows waits to people works it out here: `inspect`, the drawing, the
// profile.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::task {

/// A region of an exchange that tasks read: each waits for all its flags.
struct FlaggedRegion {
  int buffer = 0;
  loop::Box box;
  std::vector<int> writers;  // tasks that write into it, ascending
  std::vector<int> readers;  // tasks that read just this, ascending
};

class FlagWaits {
 public:
  explicit FlagWaits(const TaskGraph& graph);

  /// Each once, in the order in which tasks first read them.
  const std::vector<FlaggedRegion>& regions() const { return regions_; }
  /// By number, the regions that a task waits for, and those that it writes into.
  std::span<const int> waits(int task) const { return waits_[static_cast<size_t>(task)]; }
  std::span<const int> signals(int task) const { return signals_[static_cast<size_t>(task)]; }

 private:
  std::vector<FlaggedRegion> regions_;
  std::vector<std::vector<int>> waits_, signals_;  // per task
};

/// "layer.0.q[0:1, 0:64]", or "layer.0.q" of a number alone.
std::string region_text(const TaskGraph& graph, int buffer, const loop::Box& box);

/// "layer.0.q" as "layer.*.q": what the tensors or tasks of all layers have in common.
std::string name_of_all_layers(const std::string& name);

}  // namespace megalith::task
