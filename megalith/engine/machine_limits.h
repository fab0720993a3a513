// What memory and processors of a target can do at most: what speed is held against, measured in the same run, since
// a machine drifts with its neighbours and its clock.
#pragma once

#include <string>

namespace megalith::engine {

/// GB/s (10^9 bytes) at which `num_workers` of `target` ("cpu", "cuda", ...) read a buffer far larger than every cache,
/// doing nothing else; on a GPU, all multiprocessors. UserError if there is no such machine.
double read_bandwidth_gbs(const std::string& target, int num_workers);

/// GFLOP/s that they reach in loops which only multiply registers; on a GPU by mma.sync on bf16.
double multiply_rate_gflops(const std::string& target, int num_workers);

struct MachineLimits {
  double read_gbs = 0, multiply_gflops = 0;

  /// Takes the larger of before and now: others may be busy meanwhile.
  void measure(const std::string& target, int num_workers);
};

}  // namespace megalith::engine
