// Whether a task graph is one of a given tensor graph. The verifier proves a task graph by itself; what runs it takes
// addresses, bodies and rows of weights from the tensor graph by its numbers. Stands between the two, since a task
// graph may come from a file: somebody's edited artifact, or the cache.
#pragma once

#include <string>

#include "megalith/graph/graph.h"
#include "megalith/graph/lower.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

/// UserError naming the first difference in workers, buffers (they are the graph's tensors, in order), nodes, their
/// order, or the gate. `schedule`: that the tasks were made by.
void check_matches(const TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule, int num_workers);

/// UserError naming the first node whose stream of weights is not the one that its body takes, with N-parallel warpgroups or
/// not. Behind check_matches().
void check_streams(const TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule, bool n_parallel);

/// UserError naming the first task whose tile is none of its node's loop kernel or is another's as well, or the first
/// node whose tiles are not all there. Behind check_matches().
void check_tiles(const TaskGraph& tasks, const graph::Graph& graph, const graph::LoweredGraph& lowered);

/// UserError naming the first task that says of itself that it reads or writes something else than its tile of the loop
/// kernel does: the verifier believes what tasks say. Behind check_tiles().
void check_regions(const TaskGraph& tasks, const graph::Graph& graph, const graph::LoweredGraph& lowered);

}  // namespace megalith::task
