#pragma once

#include <string>

#include "megalith/graph/graph.h"

namespace megalith::optimize {

/// What a body computes and the next node changes element by element: done where the body writes it. Wherever a body of the
/// first node takes an epilogue; where it streams weights, only with constants. The value in between rounds no more: it is f32.
int fuse_epilogue(graph::Graph& graph, const std::string& target);

}  // namespace megalith::optimize
