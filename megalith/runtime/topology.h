// What this machine gives this process: cores (affinity and cgroup quota considered), memory, caches, SIMD extensions.
// Read from /proc and /sys; what a system does not say is left empty or 0, never guessed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megalith::runtime {

struct CpuCache {
  int level = 0;
  std::string type;  // "Data", "Instruction", "Unified"
  int64_t bytes = 0;
  int num_sharing = 1;  // cores that share one of it
};

struct CpuTopology {
  std::string model;              // "AMD EPYC 9B45"
  std::vector<std::string> simd;  // the extensions that kernels care for, in the kernel's spelling: "avx512_bf16"
  std::vector<int> cores;         // the logical cores this process may run on, ascending
  double quota_cores = 0;         // CPU time per second that the cgroup allows; 0: no limit
  int64_t memory_bytes = 0;       // of the machine or the cgroup, whichever is smaller
  std::vector<CpuCache> caches;   // of the first usable core

  /// Threads that can run at the same time: the cores, or the quota if that is less; at least 1.
  int num_usable() const;
};

/// Reads it anew: affinity and quota may change while a process runs. `root` stands before /proc and /sys (for tests).
CpuTopology cpu_topology(const std::string& root = "");

/// The cores of sched_getaffinity() alone.
std::vector<int> affinity_cores();

/// Ties the calling thread to a core. False if the system does not let it; then it runs where it likes.
bool pin_this_thread(int core);
/// Lets a thread of this process (its number; 0: the calling one) run on any of these cores and no other. False as above.
bool thread_may_use(int64_t thread_id, const std::vector<int>& cores);

/// Memory that can still be allocated without swapping: in the machine, in the cgroup, and within the limits of the
/// process (ulimit -v and -d).
int64_t memory_available_bytes(const std::string& root = "");

}  // namespace megalith::runtime
