#include "megalith/task/region.h"

#include <utility>

namespace megalith::task {

void box_subtract(std::vector<loop::Box>& rest, const loop::Box& hole) {
  std::vector<loop::Box> result;
  for (loop::Box& box : rest) {
    if (!box_intersects(box, hole)) {
      result.push_back(std::move(box));
      continue;
    }
    // Cut off what sticks out of the hole, one side of one dimension after the other; the middle is dropped.
    for (size_t d = 0; d < box.lo.size(); ++d) {
      if (box.lo[d] < hole.lo[d]) {
        result.push_back(box);
        result.back().hi[d] = hole.lo[d];
        box.lo[d] = hole.lo[d];
      }
      if (box.hi[d] > hole.hi[d]) {
        result.push_back(box);
        result.back().lo[d] = hole.hi[d];
        box.hi[d] = hole.hi[d];
      }
    }
  }
  rest = std::move(result);
}

}  // namespace megalith::task
