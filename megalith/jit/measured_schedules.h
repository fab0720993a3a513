// Which schedules of generated bodies were measured to be the fastest on this machine (engine/tune.h): a list in the cache,
// one for CPUs and one for GPUs. compile() takes from it what it has for the bodies of a graph, whichever graph that is, in
// place of what default_schedule() proposes.
#pragma once

#include <string>
#include <vector>

#include "megalith/graph/lower.h"
#include "megalith/jit/cache.h"

namespace megalith::jit {

class MeasuredSchedules {
 public:
  /// What the cache has for `target`: "cpu", "cuda", "cuda:sm_90a". Nothing where that is not a machine that is there.
  MeasuredSchedules(const KernelCache& cache, const std::string& target);

  /// What a plan depends on; "" if there is nothing.
  std::string identity() const;
  /// The steps of generated bodies that have none, as far as the list has them. What is not legal is warned of and left out.
  std::vector<graph::LoweredKernel> take(std::vector<graph::LoweredKernel> kernels) const;
  /// Puts a schedule into the list, in the place of what is there, and the list into the cache. `steps`: "" has all loops run in
  /// step. `why`: a comment beside it. UserError if the target is not this machine's.
  void keep(const graph::LoweredKernel& kernel, const std::string& steps, const std::string& why);
  /// Takes out what is there; false if nothing is.
  bool forget(const graph::LoweredKernel& kernel);

 private:
  struct Entry {
    std::string machine, body, name, steps;
  };
  std::vector<Entry> read() const;
  bool replace(const graph::LoweredKernel& kernel, std::vector<Entry> by);
  std::string key(const graph::LoweredKernel& kernel) const;

  const KernelCache& cache_;
  std::string target_, family_, machine_;
  std::vector<Entry> entries_;  // of all machines of the family, the newest last
};

/// Whether two kernels can have one schedule: they compute the same of the same sizes and types.
bool have_same_body(const graph::LoweredKernel& a, const graph::LoweredKernel& b);

}  // namespace megalith::jit
