#include "megalith/engine/machine_limits.h"

#include <algorithm>

#include "megalith/jit/cuda/build.h"
#include "megalith/runtime/bandwidth.h"
#include "megalith/runtime/cuda/limits.h"
#include "megalith/runtime/multiply_rate.h"

namespace megalith::engine {

double read_bandwidth_gbs(const std::string& target, int num_workers) {
  if (jit::is_cuda_target(target)) return runtime::cuda_read_bandwidth_gbs();
  return runtime::cpu_read_bandwidth_gbs({.num_threads = num_workers});
}

double multiply_rate_gflops(const std::string& target, int num_workers) {
  if (jit::is_cuda_target(target)) return runtime::cuda_multiply_rate_gflops();
  return runtime::cpu_multiply_rate_gflops({.num_threads = num_workers});
}

void MachineLimits::measure(const std::string& target, int num_workers) {
  read_gbs = std::max(read_gbs, read_bandwidth_gbs(target, num_workers));
  multiply_gflops = std::max(multiply_gflops, multiply_rate_gflops(target, num_workers));
}

}  // namespace megalith::engine
