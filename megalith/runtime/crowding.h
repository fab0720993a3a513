// Whether the workers of a run have their cores to themselves. A worker that shares its core with another process is
// late, and all others wait for it; if they spin meanwhile, the other process has no core to go to but that one. So the
// launcher looks now and then for how long workers were ready to run and did not, which Linux counts for each thread,
// and lets them sleep early and move between cores for as long as that is so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megalith::runtime {

/// What Linux counts of a thread of this process: how long it was ready to run and did not, in nanoseconds (the second
/// number of /proc/self/task/ID/schedstat). -1: the system does not say.
int64_t run_delay_ns(int64_t thread_id);
/// Of the calling thread.
int64_t this_thread_id();

class Crowding {
 public:
  /// The threads that count, by number. Before the first look.
  explicit Crowding(std::vector<int64_t> thread_ids) : threads_(thread_ids.begin(), thread_ids.end()) {}

  /// Compares with the last look, at times `now_ns` of one clock. True from a look on at which a thread had waited for
  /// its core for more than a twentieth of the time since the last one, until a second has passed without that.
  bool look(int64_t now_ns);

 private:
  struct Thread {
    int64_t id, delay_ns = -1;  // at the last look; -1: none, or not known
    explicit Thread(int64_t id_) : id(id_) {}
  };
  std::vector<Thread> threads_;
  int64_t last_ns_ = -1, crowded_ns_ = -1;  // of the last look, and the last one that saw a thread wait; -1: none
};

}  // namespace megalith::runtime
