// How fast one operator runs by itself: the benchmark that every operator gets from its declaration.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megalith/engine/machine_limits.h"
#include "megalith/graph/operator.h"

namespace megalith::engine {

using OperatorSizes = std::map<std::string, int64_t>;

struct OperatorBench {
  std::string target = "cpu";  // or "cuda"
  int num_workers = 0;         // 0: default_num_workers()
  int runs = 100;
  DType dtype = DType::bf16;             // of operands that have none of their own
  std::function<bool()> cancelled = {};  // asked between runs: what is not complete is left out
};

struct OperatorTiming {
  OperatorSizes sizes;
  int copies = 1;               // of the operands, used in turn
  int64_t iterations = 1;       // over all copies, in each run
  std::vector<double> seconds;  // that the operator took, once, on average over a run
  double bytes = 0;             // that must move at least: what is read and written, each element once
  double flops = 0;

  double median_seconds() const;
  double gigabytes_per_second() const { return bytes / median_seconds() / 1e9; }
  double gflops() const { return flops / median_seconds() / 1e9; }
};

/// At least four shapes: 1, 8, 64 and 512 rows where the operator has rows, beside sizes such as models have where
/// names say what they are (H, K, N, I, V) and those of its largest test elsewhere.
std::vector<OperatorSizes> bench_shapes(const graph::Operator& op);

/// Runs the operator on random operands. Copies of them follow each other in one graph, as many as it takes to miss the
/// caches (but no more than 64: what is small stays in them, as in a model), and a run goes over all of them so often
/// that its beginning and end do not count. UserError if the operator is opaque or sizes do not fit.
OperatorTiming time_operator(const graph::Operator& op, const OperatorSizes& sizes, const OperatorBench& options);

/// Each of `shapes` in turn, and the limits in the same run. `done` is called after each; false ends it.
struct OperatorBenchResult {
  std::vector<OperatorTiming> timings;
  MachineLimits limits;
  int num_workers = 0;
};
OperatorBenchResult bench_operator(const graph::Operator& op, const std::vector<OperatorSizes>& shapes,
                                   const OperatorBench& options,
                                   const std::function<bool(const OperatorTiming&)>& done = {});

}  // namespace megalith::engine
