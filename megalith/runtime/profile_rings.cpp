#include "megalith/runtime/profile_rings.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/runtime/cpu/sync.h"

namespace megalith::runtime {

namespace {

// 32 bytes each: 64 million records are 2 GiB a worker.
constexpr u64 kMostRecords = u64{1} << 26;

}  // namespace

u64 profile_longest_list(const Launch& launch) {
  u32 longest = 1;
  for (u32 w = 0; w < launch.num_workers; ++w)
    longest = std::max(longest, launch.list_begin[w + 1] - launch.list_begin[w]);
  return longest;
}

u32 profile_capacity_for(u64 records) {
  MEGALITH_CHECK(records >= 1 && records <= kMostRecords,
                 "[profile] {} records per worker, want 1 to {}: profile fewer iterations", records, kMostRecords);
  return static_cast<u32>(std::bit_ceil(records));
}

// The narrowest of a few looks: the tick counter is read twice around the clock.
ClockPair clock_pair_now() {
  ClockPair best;
  u64 narrowest = ~u64{0};
  for (int look = 0; look < 8; ++look) {
    const u64 before = profile_clock(), ns = monotonic_ns(), after = profile_clock();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {before + (after - before) / 2, ns};
  }
  return best;
}

std::vector<ProfileRecord> profile_unroll(const ProfileRecord* ring, u32 capacity, u32 tasks_done, ClockPair begin,
                                          ClockPair end) {
  const double ns_per_tick = end.ticks > begin.ticks
                                 ? static_cast<double>(end.ns - begin.ns) / static_cast<double>(end.ticks - begin.ticks)
                                 : 1;
  auto to_ns = [&](u64 ticks) {  // a tick before `begin` comes out before begin.ns
    const auto since = static_cast<double>(static_cast<i64>(ticks - begin.ticks));
    return begin.ns + static_cast<u64>(static_cast<i64>(since * ns_per_tick));
  };
  std::vector<ProfileRecord> records;
  const u32 count = std::min(tasks_done, capacity);
  records.reserve(count);
  for (u32 n = tasks_done - count; n != tasks_done; ++n) {
    ProfileRecord record = ring[n & (capacity - 1)];
    for (u64* time : {&record.begin_ns, &record.ready_ns, &record.end_ns}) *time = to_ns(*time);
    records.push_back(record);
  }
  return records;
}

ProfileRings::ProfileRings(u32 num_workers, u64 records)
    : num_workers_(num_workers),
      capacity_(profile_capacity_for(records)),
      memory_(static_cast<int64_t>(sizeof(ProfileRecord)) * capacity_ * num_workers, "the profile's records") {
  std::memset(memory_.data(), 0, static_cast<size_t>(memory_.bytes()));  // a page fault takes longer than a task
}

Profile ProfileRings::take(const WorkerStatus* status) const {
  const ClockPair end = clock_pair_now();
  Profile profile;
  for (u32 w = 0; w < num_workers_; ++w)
    profile.workers.push_back(
        profile_unroll(records() + static_cast<size_t>(w) * capacity_, capacity_, status[w].tasks_done, begin_, end));
  return profile;
}

}  // namespace megalith::runtime
