// The pages of the KV cache that nobody has.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace megalith::engine {

class PagePool {
 public:
  /// All `num_pages` are free.
  explicit PagePool(int64_t num_pages);

  int64_t num_pages() const { return num_pages_; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  /// Takes `count` of them; there must be as many.
  std::vector<int32_t> take(int64_t count);
  void give_back(const std::vector<int32_t>& pages);

 private:
  int64_t num_pages_;
  std::deque<int32_t> free_;
};

}  // namespace megalith::engine
