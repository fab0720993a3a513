#include "megalith/loop/nest.h"

namespace megalith::loop {

std::vector<NestNode> build_nest(const Kernel& kernel) {
  std::vector<NestNode> roots;
  std::vector<std::string> open;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    const std::vector<std::string>& within = kernel.instructions[i].within;
    size_t shared = 0;
    while (!kernel.instructions[i].is_behind_barrier && shared < open.size() && shared < within.size() &&
           open[shared] == within[shared])
      ++shared;

    // The open loops are always the last of their siblings.
    std::vector<NestNode>* body = &roots;
    for (size_t level = 0; level < shared; ++level) body = &body->back().body;
    for (size_t level = shared; level < within.size(); ++level) {
      body->push_back({within[level], {}, -1});
      body = &body->back().body;
    }
    body->push_back({"", {}, static_cast<int>(i)});
    open = within;
  }
  return roots;
}

}  // namespace megalith::loop
