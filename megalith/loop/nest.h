// The loop nest of a kernel: the tree of loops in which its instructions run, by the rule in loop/kernel.h. The one
// place that decides the order; interpreter and code generators walk it.
#pragma once

#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Either a loop over `iname` with a body, or (iname empty) one instruction. What is neither is a barrier, which
/// loop/parallel.h puts in.
struct NestNode {
  std::string iname;
  std::vector<NestNode> body;
  int instruction = -1;          // index into Kernel::instructions
  bool is_warp_barrier = false;  // only over the threads of a warp
};

std::vector<NestNode> build_nest(const Kernel& kernel);

}  // namespace megalith::loop
