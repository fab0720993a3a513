// Which tasks must come before which: two tasks that touch a common element, one of them writing it, in the order of
// the program. First after the tasks are made, because everything else (placement, arena, events) is derived from it.
//
// Tasks come in groups (runs of tasks of one node), and most groups of a model repeat: what a group does to a buffer is
// a *pattern* (boxes by position in the group), and which tasks of one pattern meet which tasks of another is worked
// out once per pair of patterns, whatever layer they stand in. A group's write that covers everything an earlier group
// touched hides that group from all later ones: whoever meets it meets the writer, too.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::task {

/// A run of consecutive tasks of one node. Groups with the same signature have as many tasks, with the same costs and
/// the same boxes (in whatever buffers): tile j of one is like tile j of the other.
struct Group {
  int begin = 0, end = 0;  // task indices
  int signature = 0;
};

struct Dependences {
  std::vector<Group> groups;
  std::vector<std::vector<int>> sets;     // distinct sets of tasks, ascending; shared by the tasks that come after them
  std::vector<std::vector<int>> within;   // per task: sets that precede it in the same iteration
  std::vector<std::vector<int>> words;    // per task: sets whose words of an exchange it waits for by itself
  std::vector<std::vector<int>> carried;  // per task: sets of iteration i that must precede it in iteration i + 1
  int64_t num_relations = 0;              // pairs of patterns worked out
  int64_t num_relations_shared = 0;       // ... and used again
};

/// Hazards between accesses to the same buffer (read after write, write after read, write after write). Bytes that
/// arena buffers share are no matter here: the arena shares only what these dependences already order.
Dependences find_dependences(const std::vector<Task>& tasks, const std::vector<Buffer>& buffers);

}  // namespace megalith::task
