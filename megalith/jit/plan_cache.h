// Plans on disk: the task graph and the source that the first half of compile() makes of a graph. A graph that was
// compiled before, for the same number of workers by the same build, skips lower, partition and emit, which is most of
// the time of a warm start. The task graph is verified again whenever it is read.
#pragma once

#include <optional>
#include <string>

#include "megalith/jit/cache.h"

namespace megalith::jit {

struct Plan {
  std::string tasks;   // task/bytes.h
  std::string source;  // kernel.cpp or kernel.cu
};

class PlanCache {
 public:
  /// `identity`: all that the plan depends on beside our own build.
  PlanCache(const KernelCache& cache, const std::string& identity);

  std::optional<Plan> find() const;
  /// A cache that cannot be written costs time next time, nothing else.
  void store(const std::string& name, const Plan& plan) const;
  /// For one that turns out to be of no use.
  void remove() const;

 private:
  const KernelCache& cache_;
  std::string identity_, key_;
};

}  // namespace megalith::jit
