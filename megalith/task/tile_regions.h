// What a task touches, worked out from the loop kernel of its node: the footprints of its tile as regions of buffers.
// Stands before partition(), which makes tasks of it, and match.h, which holds an edited file against it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "megalith/graph/lower.h"
#include "megalith/loop/footprint.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

class TileRegions {
 public:
  /// Both must outlive it.
  TileRegions(const graph::Graph& graph, const graph::LoweredGraph& lowered);

  /// Sets `reads` and `writes` of a task whose node and tile are of the graph, in the order in which its operator
  /// declares its operands.
  void fill(Task& task) const;

 private:
  const graph::Graph& graph_;
  const graph::LoweredGraph& lowered_;
  std::vector<loop::Footprints> footprints_;    // of each lowered kernel
  std::vector<std::set<std::string>> updated_;  // likewise: the operands that it both reads and writes
};

}  // namespace megalith::task
