// Boxes as sets: the few questions that planning asks about them. The verifier does not use this file; it shares
// nothing but task_graph.h with what it checks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "megalith/task/task_graph.h"

namespace megalith::task {

inline bool box_empty(const loop::Box& box) {
  for (size_t d = 0; d < box.lo.size(); ++d)
    if (box.hi[d] <= box.lo[d]) return true;
  return false;
}

inline bool box_intersects(const loop::Box& a, const loop::Box& b) {
  for (size_t d = 0; d < a.lo.size(); ++d)
    if (std::max(a.lo[d], b.lo[d]) >= std::min(a.hi[d], b.hi[d])) return false;
  return true;
}

inline bool box_contains(const loop::Box& outer, const loop::Box& inner) {
  for (size_t d = 0; d < outer.lo.size(); ++d)
    if (inner.lo[d] < outer.lo[d] || inner.hi[d] > outer.hi[d]) return false;
  return true;
}

inline int64_t box_elements(const loop::Box& box) {
  int64_t elements = 1;
  for (size_t d = 0; d < box.lo.size(); ++d) elements *= std::max<int64_t>(0, box.hi[d] - box.lo[d]);
  return elements;
}

/// Takes `hole` out of every box of `rest`; what remains are disjoint boxes if they were disjoint before.
void box_subtract(std::vector<loop::Box>& rest, const loop::Box& hole);

}  // namespace megalith::task
