// The corner of a box, kept in place: a plan has hundreds of thousands of them, and to ask for each one's memory and to
// give it back was a tenth of a warm start.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "megalith/base/error.h"

namespace megalith::loop {

/// The most dimensions that a tensor has.
constexpr size_t kMaxRank = 8;

/// An index per dimension. To be used like a vector that has no more than kMaxRank elements.
class Corner {
 public:
  using value_type = int64_t;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;

  Corner() = default;
  Corner(std::initializer_list<int64_t> indices) {
    for (int64_t index : indices) push_back(index);
  }
  explicit Corner(const std::vector<int64_t>& indices) {
    for (int64_t index : indices) push_back(index);
  }
  Corner(size_t rank, int64_t index) {
    for (size_t d = 0; d < rank; ++d) push_back(index);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](size_t d) { return indices_[d]; }
  const int64_t& operator[](size_t d) const { return indices_[d]; }
  iterator begin() { return indices_.data(); }
  iterator end() { return begin() + size_; }
  const_iterator begin() const { return indices_.data(); }
  const_iterator end() const { return begin() + size_; }

  /// UserError if it has kMaxRank dimensions already.
  void push_back(int64_t index) {
    MEGALITH_CHECK(size_ < kMaxRank, "a tensor has more than {} dimensions", kMaxRank);
    indices_[size_++] = index;
  }

  friend bool operator==(const Corner& a, const Corner& b) { return std::ranges::equal(a, b); }
  /// Some order.
  friend bool operator<(const Corner& a, const Corner& b) { return std::ranges::lexicographical_compare(a, b); }

 private:
  size_t size_ = 0;
  std::array<int64_t, kMaxRank> indices_;  // as many of them as it has dimensions
};

}  // namespace megalith::loop
