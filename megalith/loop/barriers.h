// Where barriers come to stand in a nest, given which instructions must be apart: as few as that takes. Internal to
// loop/parallel.cpp.
#pragma once

#include <cstddef>
#include <vector>

#include "megalith/loop/nest.h"

namespace megalith::loop {

/// A barrier that must stand somewhere between two instructions, in the body of their innermost common loop, or of the loop
/// that carries the dependence.
struct BarrierDemand {
  size_t from = 0, to = 0;
  size_t level = 0;  // loops around that body
  bool carried = false;
  bool in_warp = false;  // all that depend on each other are of one warp
};

struct BarrierCounts {
  int all = 0, of_warps = 0;
};

/// Puts barriers into `nodes` such that all demands are met: those of the block first, then of warps.
BarrierCounts place_barriers(std::vector<NestNode>& nodes, const std::vector<BarrierDemand>& demands);

/// The place in `nodes` of what contains the instruction; nodes.size() if nothing does.
size_t child_of(const std::vector<NestNode>& nodes, size_t instruction);

}  // namespace megalith::loop
