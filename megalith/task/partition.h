// Partition: from a lowered graph to tasks in program order, each with the regions it reads and writes, worked out from
// its loop kernel. Stands before plan(), which orders, places and connects them.
#pragma once

#include <vector>

#include "megalith/graph/lower.h"
#include "megalith/machine/machine.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

/// Buffers are the graph's tensors, in the same order. Tasks of a node follow each other, nodes stand in program order.
struct Partitioned {
  std::vector<Task> tasks;
  std::vector<Buffer> buffers;
};

/// The graph's tensors, in order, before they have a place.
std::vector<Buffer> buffers_of(const graph::Graph& graph, const graph::Schedule& schedule);

/// How many values each task axis takes: the extent of its iname in the kernel's domain, for sizes as bound.
std::vector<int64_t> axis_extents(const graph::LoweredKernel& lowered, const loop::Binding& binding);

/// Whether a task axis counts split-K slices of the rows of streamed weights. A task has one of them.
bool counts_slices(const std::string& axis, const graph::LoweredKernel& lowered);

/// How many values of each task axis belong together, so that tiles begin at multiples of it: rows of weights that are
/// laid out as one panel or one group of a stream.
std::vector<int64_t> axis_grains(const graph::LoweredKernel& lowered);

/// More than any machine has. Tasks are as many, and planning takes memory and time for each.
constexpr int kMaxWorkers = 1024;

/// Cuts every node into about as many tasks as there are workers, along its operator's task axes in the order declared
/// (tile sizes and numbers of pieces that the schedule names go first). Tiles are as equal as the axis's multiple allows; pieces
/// as equal as the layout of weights allows. `rates`: of a worker, for what tasks cost.
Partitioned partition(const graph::Graph& graph, const graph::LoweredGraph& lowered, int num_workers,
                      const machine::WorkerRates& rates);

}  // namespace megalith::task
