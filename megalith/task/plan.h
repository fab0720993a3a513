// From tasks with regions to a task graph that is proved sound: the table of contents of this folder.
//
//   TaskGraph graph = plan(std::move(tasks), std::move(buffers), {.name = "storyteller", .num_workers = 4,
//                                                                 .gate_task = sampler});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megalith/task/arena.h"
#include "megalith/task/event.h"
#include "megalith/task/place.h"
#include "megalith/task/task_graph.h"
#include "megalith/task/verify.h"

namespace megalith::task {

struct PlanOptions {
  std::string name;
  int num_workers = 1;
  std::optional<int> gate_task;  // no worker begins the next iteration before this task has ended
  bool warm_caches = true;       // a worker finds in its cache what its last tasks had there: on a CPU, not on a GPU
  bool reuse_arena = true;       // false: every buffer keeps its bytes until the next iteration, for who looks at them
};

struct PlanReport {
  struct Step {
    std::string name;
    double ms = 0;
  };
  std::vector<Step> steps;
  int64_t num_relations = 0, num_relations_shared = 0;  // of the dependences
  PlaceReport place;
  ArenaReport arena;
  EventReport events;

  /// A few aligned lines for people.
  std::string text() const;
};

/// `tasks` stand in program order with name, node, tile, reads, writes and cost; the rest is filled in here. `buffers`
/// come without offsets; their bytes follow from shape and dtype. InternalError if the result fails the verifier.
TaskGraph plan(std::vector<Task> tasks, std::vector<Buffer> buffers, const PlanOptions& options,
               PlanReport* report = nullptr);

}  // namespace megalith::task
