#include "megalith/engine/page_pool.h"

#include "megalith/base/error.h"

namespace megalith::engine {

PagePool::PagePool(const graph::Graph& graph, int64_t num_pages) : num_pages_(num_pages) {
  // In others they lie one behind the other, and it does not matter.
  for (const graph::Node& node : graph.nodes()) {
    if (!node.op->name.ends_with("rope_attention")) continue;
    step_ = 2;
    apart_ = node.sizes.at("F");
    side_by_side_ = node.tile.at("r");
    break;
  }
  for (int64_t page = 0; page < num_pages; ++page) free_[page % step_].push_back(static_cast<int32_t>(page));
}

std::vector<int32_t> PagePool::take(int64_t place, int64_t count) {
  MEGALITH_ASSERT(count <= num_free(), "[pages] {} pages wanted, {} are free", count, num_free());
  std::deque<int32_t>&mine = free_[place % apart_ / side_by_side_ % step_], &other = free_[&mine == free_ ? 1 : 0];
  std::vector<int32_t> pages;
  for (int64_t i = 0; i < count; ++i) {
    std::deque<int32_t>& from = mine.empty() ? other : mine;
    pages.push_back(from.front());
    from.pop_front();
  }
  return pages;
}

void PagePool::give_back(const std::vector<int32_t>& pages) {
  for (const int32_t page : pages) free_[page % step_].push_back(page);
}

}  // namespace megalith::engine
