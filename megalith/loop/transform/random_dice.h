// Choices that are the same for the same seed: what random kernels and schedules are made by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace megalith::loop {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  int below(int most) { return static_cast<int>(random_() % static_cast<uint64_t>(most)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(below(static_cast<int>(all.size())))];
  }
  template <class T>
  void shuffle(std::vector<T>& all) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[static_cast<size_t>(below(static_cast<int>(i)))]);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace megalith::loop
