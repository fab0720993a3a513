#include "megalith/task/order.h"

#include <algorithm>

namespace megalith::task {

Order::Order(const std::vector<Task>& tasks, const std::vector<std::vector<int>>& workers,
             const Dependences& dependences)
    : num_workers_(static_cast<int>(workers.size())), position_(tasks.size()), worker_(tasks.size()) {
  const size_t stride = workers.size();
  std::vector<int> previous(tasks.size(), -1);
  for (size_t w = 0; w < workers.size(); ++w)
    for (size_t i = 0; i < workers[w].size(); ++i) {
      const size_t t = static_cast<size_t>(workers[w][i]);
      position_[t] = static_cast<int>(i) + 1;
      worker_[t] = static_cast<int>(w);
      if (i > 0) previous[t] = workers[w][i - 1];
    }

  clocks_.resize(tasks.size() * stride, 0);
  std::vector<std::vector<int>> set_clocks(dependences.sets.size());  // joined on first use: then all of it is known
  for (size_t t = 0; t < tasks.size(); ++t) {
    int* mine = clocks_.data() + t * stride;
    if (previous[t] >= 0) std::copy_n(clock(previous[t]), stride, mine);
    for (int set : dependences.within[t]) {
      std::vector<int>& joined = set_clocks[static_cast<size_t>(set)];
      if (joined.empty()) {
        joined.resize(stride, 0);
        for (int producer : dependences.sets[static_cast<size_t>(set)])
          clock_join(joined.data(), clock(producer), num_workers_);
      }
      clock_join(mine, joined.data(), num_workers_);
    }
    mine[worker_[t]] = position_[t];
  }
}

bool Order::before(int first, int second) const {
  return first != second && clock(second)[worker_[static_cast<size_t>(first)]] >= position(first);
}

}  // namespace megalith::task
