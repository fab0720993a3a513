// Graph and lowered kernels as text: the artifacts of the first two stages.
#pragma once

#include <string>

#include "megalith/graph/graph.h"
#include "megalith/graph/lower.h"

namespace megalith::graph {

/// One line a tensor, then one line a node: `layer.0.q: f32[rows<=64, 256] = rmsnorm_linear(x, norm, weight)
/// eps=1e-06`. All that compiling depends on is in it, but for the operators' definitions: plans are kept by this text.
std::string print(const Graph& graph);

/// Every lowered kernel as loop-kernel text, each under a comment that says where it is used and by what body.
std::string print(const Graph& graph, const LoweredGraph& lowered);
/// The kernels of `lowered` replaced by those of the text, which must be the same ones by name with the same operands. One
/// that was edited has a generated body, which must take its operands as the schedule lays them out.
LoweredGraph parse_loops(const std::string& text, const Graph& graph, LoweredGraph lowered);

}  // namespace megalith::graph
