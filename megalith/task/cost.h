// What work costs: the bytes that it moves, by what they are, and the operations that it does, both counted from the loop
// kernel; and how long a worker of the target takes for it (machine/machine.h). The one place where that is worked out:
// partition() asks for tasks, `inspect --stage cost` and benchmarks ask for nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megalith/graph/lower.h"
#include "megalith/machine/machine.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

struct Cost {
  double weight_bytes = 0, state_bytes = 0, activation_bytes = 0;
  double streamed_bytes = 0;  // of the weights, those that come through a GPU's streams; in int8 with their scales
  double flops = 0;           // as the loop kernel has them

  double bytes() const { return weight_bytes + state_bytes + activation_bytes; }
  Cost& operator+=(const Cost& other);
};

class Costs {
 public:
  /// `graph` and `lowered` must outlive it.
  Costs(const graph::Graph& graph, const graph::LoweredGraph& lowered, const machine::WorkerRates& rates);

  /// Of a node's tile, a range for each task axis, or without any of the whole node, where no dynamic size is more than
  /// `rows`. What depends on a text's length counts at its longest.
  Cost of(int node, const std::vector<loop::Range>& tile, int64_t rows);

  /// Of a worker that does it as one task.
  double ns(int node, const Cost& cost) const;

 private:
  struct Counts {
    std::vector<double> moved_bytes, touched_bytes;  // per operand; the second as often as each is touched
    double flops = 0;
  };
  const graph::LoweredKernel& kernel_of(int node) const;
  const Counts& counts(int kernel, const std::vector<loop::Range>& tile, int64_t rows);

  const graph::Graph& graph_;
  const graph::LoweredGraph& lowered_;
  const machine::WorkerRates rates_;
  std::map<std::pair<int, int64_t>, std::vector<int64_t>> extents_;  // of a kernel's task axes, for so many rows
  std::map<std::pair<int, std::vector<int64_t>>, Counts> known_;     // by kernel, rows, and what tells tiles apart
};

/// Bytes of constants that a task reads: of those that come through its stream in int8, that and their scales.
int64_t weight_bytes(const TaskGraph& tasks, const Task& task);

}  // namespace megalith::task
