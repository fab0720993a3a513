#include "megalith/engine/page_pool.h"

#include <numeric>

#include "megalith/base/error.h"

namespace megalith::engine {

PagePool::PagePool(int64_t num_pages) : num_pages_(num_pages), free_(static_cast<size_t>(num_pages)) {
  std::iota(free_.begin(), free_.end(), 0);
}

std::vector<int32_t> PagePool::take(int64_t count) {
  MEGALITH_ASSERT(count <= num_free(), "[pages] {} pages wanted, {} are free", count, num_free());
  const auto end = free_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<int32_t> pages(free_.begin(), end);
  free_.erase(free_.begin(), end);
  return pages;
}

void PagePool::give_back(const std::vector<int32_t>& pages) { free_.insert(free_.end(), pages.begin(), pages.end()); }

}  // namespace megalith::engine
