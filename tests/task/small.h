// Task lists of a few lines, for tests: one-dimensional f32 buffers, tasks that name what they read and write.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/plan.h"

namespace megalith::test {

class Small {
 public:
  int buffer(const std::string& name, int64_t size = 16, task::Memory memory = task::Memory::arena) {
    buffers.push_back({.name = name, .dtype = DType::f32, .shape = {size}, .memory = memory});
    return static_cast<int>(buffers.size()) - 1;
  }
  task::Region whole(int b) const { return part(b, 0, buffers[static_cast<size_t>(b)].shape[0]); }
  task::Region part(int b, int64_t begin, int64_t end) const { return {b, {{begin}, {end}}}; }
  /// Written somewhere by these rows.
  task::Region rows(int b, int64_t begin, int64_t end) const {
    task::Region region = whole(b);
    region.row_begin = begin, region.row_end = end;
    return region;
  }

  /// A task of a node of its own.
  int task(const std::string& name, std::vector<task::Region> reads, std::vector<task::Region> writes,
           double cost_ns = 100) {
    ++node_;
    return tile(name, std::move(reads), std::move(writes), cost_ns);
  }
  /// One more task of the same node.
  int tile(const std::string& name, std::vector<task::Region> reads, std::vector<task::Region> writes,
           double cost_ns = 100) {
    tasks.push_back(
        {.name = name, .node = node_, .reads = std::move(reads), .writes = std::move(writes), .cost_ns = cost_ns});
    return static_cast<int>(tasks.size()) - 1;
  }

  task::TaskGraph plan(int num_workers, std::optional<int> gate = {}) const {
    return task::plan(tasks, buffers, {.name = "small", .num_workers = num_workers, .gate_task = gate});
  }

  std::vector<task::Task> tasks;
  std::vector<task::Buffer> buffers;

 private:
  int node_ = 0;
};

}  // namespace megalith::test
