// How fast a graph runs by itself, iteration after iteration in one launch: one that was built by hand or from layers in
// Python, without a model's files. Its constants and states are made up.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megalith/engine/machine_limits.h"
#include "megalith/graph/graph_file.h"

namespace megalith::engine {

struct GraphBench {
  std::string target = "cpu";  // or "cuda"
  int num_workers = 0;         // 0: default_num_workers()
  int runs = 20;
  bool optimized = true;                 // by the rules, as PersistentKernel does outside of test mode
  std::function<bool()> cancelled = {};  // asked between runs
};

struct GraphTiming {
  std::string name;
  int64_t nodes = 0;            // that run, after the rules
  int64_t weight_bytes = 0;     // of constants that an iteration reads as a whole, as they come from memory
  int64_t iterations = 0;       // in each run, which is one launch
  std::vector<double> seconds;  // of an iteration, on average over a run
  MachineLimits limits;
  int num_workers = 0;

  double median_seconds() const;
  double gigabytes_per_second() const { return static_cast<double>(weight_bytes) / median_seconds() / 1e9; }
};

/// Runs the graph of a file. Floats are random; integers are what the file says, or random where an operator points with
/// them and 0 elsewhere; a dynamic size of which nothing is said is at its largest. UserError if an operator is opaque.
GraphTiming time_graph(const graph::GraphFile& file, const GraphBench& options);

}  // namespace megalith::engine
