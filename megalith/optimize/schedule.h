// Makes a graph's schedule, and checks one that somebody edited. All decisions about layouts are here.
#pragma once

#include <string>

#include "megalith/graph/lower.h"
#include "megalith/graph/schedule.h"

namespace megalith::optimize {

/// For a target, "cpu", "cuda" or "cuda:sm_90a":
/// - each node has the first of its bodies that takes it, if that leaves room for weights to stream past others;
/// - activations that are few enough for a reader to look at each word travel with their flag in the data, where every
///   reader and writer takes them so;
/// - weights lie in panels where some body wants them so;
/// - activations of many rows lie in fragments, and caches in pairs of heads, where every reader and writer takes them so.
graph::Schedule make_schedule(const graph::Graph& graph, const std::string& target);

/// UserError naming tensor or node if the schedule is none of this graph, or one by which it would compute something
/// else or nothing: a body that does not take its node, a layout that a body does not take or a tensor cannot have.
void check_schedule(const graph::Graph& graph, const graph::Schedule& schedule);

/// graph::lower() by make_schedule().
graph::LoweredGraph lower(const graph::Graph& graph, const std::string& target);

}  // namespace megalith::optimize
