// Where every arena buffer lies. Two buffers may share bytes only if every access of one happens before every access of
// the other, by the dependences and the workers' lists: sharing then needs no new waits within an iteration (events
// adds those between iterations), and costs no parallelism. Stands after placement, because list order is part of that
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/task/order.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

constexpr int64_t kArenaAlignment = 64;  // a cache line, and what a bulk copy wants

struct ArenaReport {
  int64_t bytes_without_reuse = 0;
  int64_t bytes = 0;
  int num_buffers = 0;
  int num_kept = 0;  // read before they are written, so that they carry values over iterations and share with nobody
};

/// Sets Buffer::offset of arena buffers (0 for others) and returns the arena's size. First fit, tried with the largest
/// buffers first and with the earliest first; the smaller arena wins. Without `reuse` no two share a byte.
int64_t assign_arena(std::vector<Buffer>& buffers, const std::vector<Task>& tasks, const Order& order,
                     ArenaReport* report = nullptr, bool reuse = true);

}  // namespace megalith::task
