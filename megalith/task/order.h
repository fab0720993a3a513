// Happens-before in one iteration, from the workers' lists and the dependences, as vector clocks: per task, how many
// tasks of each worker's list come before it. Needs lists in program order, so that one walk over the tasks sees every
// predecessor first. The arena asks it who may share bytes, and the events are chosen so that exactly this order holds.
#pragma once

#include <vector>

#include "megalith/task/dependence.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

class Order {
 public:
  Order(const std::vector<Task>& tasks, const std::vector<std::vector<int>>& workers, const Dependences& dependences);

  int num_workers() const { return num_workers_; }
  /// Position of a task in its worker's list, counted from 1.
  int position(int task) const { return position_[static_cast<size_t>(task)]; }
  /// Per worker the number of tasks of its list that precede `task` or are it.
  const int* clock(int task) const {
    return clocks_.data() + static_cast<size_t>(task) * static_cast<size_t>(num_workers_);
  }
  bool before(int first, int second) const;

 private:
  int num_workers_;
  std::vector<int> position_, worker_;  // per task
  std::vector<int> clocks_;             // (tasks, workers)
};

/// clock = max(clock, other), worker by worker.
inline void clock_join(int* clock, const int* other, int num_workers) {
  for (int w = 0; w < num_workers; ++w) clock[w] = clock[w] > other[w] ? clock[w] : other[w];
}

}  // namespace megalith::task
