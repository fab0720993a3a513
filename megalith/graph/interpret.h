// The reference for a whole graph: every node's loop kernel (or plain reference), one after the other, in float64.
#pragma once

#include <functional>
#include <string>

#include "megalith/graph/lower.h"
#include "megalith/loop/interpret.h"

namespace megalith::graph {

/// Runs iterations of `graph` on `arrays` (one per tensor name; constants and states must be there, activations are
/// made). Stops after `max_iterations`, or when the gate's stop word is set. Returns the number of iterations run.
/// `observe`, if given, is called after every node with the node's index.
int64_t interpret(const Graph& graph, const LoweredGraph& lowered, loop::Arrays& arrays, int64_t max_iterations,
                  const std::function<void(int)>& observe = {});

}  // namespace megalith::graph
