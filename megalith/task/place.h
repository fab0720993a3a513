// Which worker runs which task. Stands after the dependences, because only tasks of one dependence level run at the
// same time and so only those must be balanced against each other. Lists keep program order: every wait is for a task
// that comes earlier in the program, so lists in that order can never deadlock.
#pragma once

#include <vector>

#include "megalith/task/dependence.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

// All by what tasks are placed by.
struct PlaceReport {
  std::vector<double> worker_cost_ns;  // per worker, the sum over its tasks
  double imbalance = 0;                // largest over mean, less 1
  double levels_ns = 0;  // sum over dependence levels of the busiest worker's share: a bound on one iteration
                         // if levels were barriers
  int num_levels = 0;
  double affinity = 0;  // share of the tasks that run where their twin in the previous identical group ran
};

/// Sets Task::worker and returns the lists. Longest task first onto the least loaded worker, level by level; among the
/// workers that are equally good, with `warm_caches` the one that ran what this task consumes (no event is needed
/// then), or the one where the same tile of the previous identical group ran; without, the one with the least to do so
/// far, so that what is uneven in one layer is made up for in the next, but a task that is alone on its level goes where
/// that ran. Deterministic: the same tasks always get the same places.
std::vector<std::vector<int>> place(std::vector<Task>& tasks, const Dependences& dependences, int num_workers,
                                    bool warm_caches = true, PlaceReport* report = nullptr);

}  // namespace megalith::task
