// Streams of weights: which of a graph's nodes take weights from their workers' streams and in which order (by their
// bodies), and from that what each task takes, and where in its worker's stream. Stands behind plan(): a stream follows
// its worker's list. What is worked out here is part of the task graph; nobody works it out again.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/graph/schedule.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

/// Whether the ring through which weights come is long enough, in `shared_bytes` of a block's shared memory beside what
/// the schedule's bodies work in, that warpgroups may have groups of rows side by side (kernels/shared_budget.h).
bool streams_are_n_parallel(const graph::Graph& graph, const graph::Schedule& schedule, int64_t shared_bytes);

/// What nodes stream, as the schedule's bodies take it, with N-parallel warpgroups or not.
std::vector<WeightStream> weight_streams(const graph::Graph& graph, const graph::Schedule& schedule, bool n_parallel);

/// Gives a planned graph its streams, for blocks of `shared_bytes` of shared memory, and its tasks their parts of them.
void add_streams(TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule, int64_t shared_bytes);

}  // namespace megalith::task
