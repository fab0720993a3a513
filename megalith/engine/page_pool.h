// The pages of the KV cache that nobody has.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "megalith/graph/graph.h"

namespace megalith::engine {

class PagePool {
 public:
  /// All `num_pages` are free. `graph`: the decoder whose cache it is.
  PagePool(const graph::Graph& graph, int64_t num_pages);

  int64_t num_pages() const { return num_pages_; }
  int64_t num_free() const { return static_cast<int64_t>(free_[0].size() + free_[1].size()); }
  /// Takes `count` of them for the request in place `place`; there must be as many.
  std::vector<int32_t> take(int64_t place, int64_t count);
  void give_back(const std::vector<int32_t>& pages);

 private:
  int64_t num_pages_;
  // Where pages are in pairs (kernels/page_pairs.h) the requests of one task of attention get even ones, those of the next
  // one odd ones, as long as there are any: a task's number and its worker's are alike in that. A task has so many requests side
  // by side, and those that are `apart_` further.
  int64_t step_ = 1, side_by_side_ = 1, apart_ = 1;
  std::deque<int32_t> free_[2];  // by page % step_
};

}  // namespace megalith::engine
