// How likely a model holds each token behind what an engine has just worked on, by its logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "megalith/engine/engine.h"

namespace megalith::engine {

class ModelLogprobs {
 public:
  explicit ModelLogprobs(const Engine& engine)
      : logits_(engine.logits(), engine.logits() + engine.config().vocab_size), order_(logits_.size()) {
    const double largest = *std::ranges::max_element(logits_);
    double total = 0;
    for (const float logit : logits_) total += std::exp(logit - largest);
    subtracted_ = largest + std::log(total);
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(
        order_, [&](int a, int b) { return logits_[static_cast<size_t>(a)] > logits_[static_cast<size_t>(b)]; });
  }
  double of(int token) const { return logits_[static_cast<size_t>(token)] - subtracted_; }
  /// The most probable token is number 0; of equals the one with the smaller id comes first.
  int number(size_t rank) const { return order_[rank]; }

 private:
  std::vector<float> logits_;
  std::vector<int> order_;
  double subtracted_ = 0;
};

}  // namespace megalith::engine
