// The corner of a box, kept in place: a plan has hundreds of thousands of them, and to ask for each one's memory, to touch
// it and to give it back is most of a warm start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
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
  Corner(const Corner& other) : size_(other.size_), indices_(other.indices_) {
    if (is_far()) indices_.far = std::copy_n(other.indices_.far, size_, new int64_t[kMaxRank]) - size_;
  }
  Corner(Corner&& other) noexcept : size_(std::exchange(other.size_, 0)), indices_(other.indices_) {}
  Corner& operator=(Corner other) noexcept {
    std::swap(size_, other.size_);
    std::swap(indices_, other.indices_);
    return *this;
  }
  ~Corner() {
    if (is_far()) delete[] indices_.far;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](size_t d) { return begin()[d]; }
  const int64_t& operator[](size_t d) const { return begin()[d]; }
  iterator begin() { return is_far() ? indices_.far : indices_.near; }
  iterator end() { return begin() + size_; }
  const_iterator begin() const { return is_far() ? indices_.far : indices_.near; }
  const_iterator end() const { return begin() + size_; }

  /// UserError if it has kMaxRank dimensions already.
  void push_back(int64_t index) {
    MEGALITH_CHECK(size_ < kMaxRank, "a tensor has more than {} dimensions", kMaxRank);
    if (size_ == kNear) {
      int64_t* far = new int64_t[kMaxRank];
      std::copy_n(indices_.near, kNear, far);
      indices_.far = far;
    }
    ++size_;
    end()[-1] = index;
  }

  friend bool operator==(const Corner& a, const Corner& b) {
    if (a.size_ != b.size_) return false;
    const int64_t *left = a.begin(), *right = b.begin();
    for (size_t d = 0; d < a.size_; ++d)  // so few that to call for a comparison takes longer
      if (left[d] != right[d]) return false;
    return true;
  }
  /// Some order.
  friend bool operator<(const Corner& a, const Corner& b) { return std::ranges::lexicographical_compare(a, b); }

 private:
  // As many as tensors of models have; what has more keeps all of them elsewhere.
  static constexpr size_t kNear = 4;
  bool is_far() const { return size_ > kNear; }

  size_t size_ = 0;
  union {
    int64_t near[kNear];  // as many of them as it has dimensions
    int64_t* far;         // room for kMaxRank
  } indices_;
};

}  // namespace megalith::loop
