// The host's side of a profile (runtime/profile.h): rings for the workers' records, and after a run the records in
// order, on the host's clock.
#pragma once

#include <optional>
#include <vector>

#include "megalith/runtime/memory.h"
#include "megalith/runtime/profile.h"

namespace megalith::runtime {

/// How fast a GPU's multiprocessors were clocked, in MHz, while tasks were recorded: on the whole, and in the slowest and the
/// fastest piece of it. A GPU that draws all the power it may clocks itself down.
struct ClockRate {
  double mean = 0, least = 0, most = 0;
};

/// Per worker, oldest first. Times in nanoseconds, of one clock for all workers.
struct Profile {
  std::vector<std::vector<ProfileRecord>> workers;
  bool has_streams = false;             // weights come in streams, so their being idle says something
  std::optional<ClockRate> clock_rate;  // where workers' clocks are those that they work by
};

/// A moment on two clocks: the workers' (profile_clock()) and CLOCK_MONOTONIC.
struct ClockPair {
  u64 ticks = 0, ns = 0;
};
ClockPair clock_pair_now();

/// The records that `tasks_done` tasks left in a ring, oldest first. Their times are put on the second clock by
/// `clocks`, two pairs at least, oldest first: on a line through the first and the last, moved to where the pairs
/// nearby are, since clocks drift, and a look at one is only good to its resolution.
std::vector<ProfileRecord> profile_unroll(const ProfileRecord* ring, u32 capacity, u32 tasks_done,
                                          const std::vector<ClockPair>& clocks);
/// The pairs of a worker that were written beside those records (profile_clock_pair()), oldest first.
std::vector<ClockPair> profile_clocks_of(const ProfileClock* ring, u32 capacity, u32 tasks_done);
/// What pairs of one worker say of its clock, in pieces of at least `piece_ns`. Nothing if they cover no such piece.
std::optional<ClockRate> clock_rate_of(const std::vector<ClockPair>& clocks, u64 piece_ns = 500'000);

/// Tasks of the worker that has most: so many records an iteration takes.
u64 profile_longest_list(const Launch& launch);

/// Records per worker that a ring of at least `records` has: a power of two. UserError if that is too many.
u32 profile_capacity_for(u64 records);

class ProfileRings {
 public:
  /// Room for the newest `records` of each worker at least.
  ProfileRings(u32 num_workers, u64 records);

  ProfileRecord* records() const { return reinterpret_cast<ProfileRecord*>(memory_.data()); }
  u32 capacity() const { return capacity_; }

  /// Right before a run.
  void begin() { begin_ = clock_pair_now(); }
  /// After it; `status` is that of its workers.
  Profile take(const WorkerStatus* status) const;

 private:
  u32 num_workers_, capacity_;
  Mapping memory_;
  ClockPair begin_;
};

}  // namespace megalith::runtime
