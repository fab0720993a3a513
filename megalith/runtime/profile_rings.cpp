#include "megalith/runtime/profile_rings.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/runtime/cpu/sync.h"

namespace megalith::runtime {

namespace {

// 40 bytes each: 64 million records are 2.5 GiB a worker.
constexpr u64 kMaxRecords = u64{1} << 26;

}  // namespace

u64 profile_longest_list(const Launch& launch) {
  u32 longest = 1;
  for (u32 w = 0; w < launch.num_workers; ++w)
    longest = std::max(longest, launch.list_begin[w + 1] - launch.list_begin[w]);
  return longest;
}

u32 profile_capacity_for(u64 records) {
  MEGALITH_CHECK(records >= 1 && records <= kMaxRecords,
                 "[profile] {} records per worker, want 1 to {}: profile fewer iterations", records, kMaxRecords);
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

namespace {

/// From one clock to another, between pairs and beyond them.
class ClockMap {
 public:
  explicit ClockMap(const std::vector<ClockPair>& pairs) : pairs_(pairs) {
    MEGALITH_CHECK(pairs.size() >= 2, "[profile] {} looks at the clocks, want at least 2", pairs.size());
    const double ticks = ticks_of(pairs.back().ticks), ns = difference(pairs.back().ns, pairs.front().ns);
    if (ticks > 0) ns_per_tick_ = ns / ticks;
    // How far each pair is off the line, and the pairs around it.
    constexpr size_t kAround = 8;
    std::vector<double> sums(1, 0.0);
    for (const ClockPair& pair : pairs)
      sums.push_back(sums.back() + difference(pair.ns, pairs.front().ns) - ns_per_tick_ * ticks_of(pair.ticks));
    for (size_t k = 0; k < pairs.size(); ++k) {
      const size_t around = std::min({kAround, k, pairs.size() - 1 - k});
      off_.push_back((sums[k + around + 1] - sums[k - around]) / static_cast<double>(2 * around + 1));
    }
  }

  u64 to_ns(u64 ticks) const {
    // The pair behind it, or the last.
    const auto behind = std::ranges::upper_bound(pairs_.begin() + 1, pairs_.end() - 1, ticks, {}, &ClockPair::ticks);
    const auto k = static_cast<size_t>(behind - pairs_.begin());
    const double from = ticks_of(pairs_[k - 1].ticks), to = ticks_of(pairs_[k].ticks), at = ticks_of(ticks);
    const double share = to > from ? std::clamp((at - from) / (to - from), 0.0, 1.0) : 0.0;
    const double ns = ns_per_tick_ * at + off_[k - 1] + share * (off_[k] - off_[k - 1]);
    return pairs_.front().ns + static_cast<u64>(static_cast<i64>(ns));
  }

 private:
  static double difference(u64 a, u64 b) { return static_cast<double>(static_cast<i64>(a - b)); }
  double ticks_of(u64 ticks) const { return difference(ticks, pairs_.front().ticks); }

  const std::vector<ClockPair>& pairs_;
  double ns_per_tick_ = 1;
  std::vector<double> off_;
};

}  // namespace

std::vector<ProfileRecord> profile_unroll(const ProfileRecord* ring, u32 capacity, u32 tasks_done,
                                          const std::vector<ClockPair>& clocks) {
  std::vector<ProfileRecord> records;
  const u32 count = std::min(tasks_done, capacity);
  if (count == 0) return records;
  const ClockMap map(clocks);
  records.reserve(count);
  for (u32 n = tasks_done - count; n != tasks_done; ++n) {
    ProfileRecord record = ring[n & (capacity - 1)];
    for (u32* idle : {&record.idle_waiting_ns, &record.idle_busy_ns})
      *idle = static_cast<u32>(map.to_ns(record.end_ns) - map.to_ns(record.end_ns - *idle));
    for (u64* time : {&record.begin_ns, &record.ready_ns, &record.end_ns}) *time = map.to_ns(*time);
    records.push_back(record);
  }
  return records;
}

std::vector<ClockPair> profile_clocks_of(const ProfileClock* ring, u32 capacity, u32 tasks_done) {
  const u32 size = profile_clock_capacity(capacity), count = std::min(tasks_done, capacity);
  const u32 end = profile_clocks_before(tasks_done);
  const u32 before = std::min({count / kTasksOfClock + 1, end, size - 1});
  std::vector<ClockPair> pairs;
  for (u32 index = end - before; index != end + 1; ++index) {
    const ProfileClock& pair = ring[index & (size - 1)];
    pairs.push_back({pair.ticks, pair.ns});
  }
  return pairs;
}

std::optional<ClockRate> clock_rate_of(const std::vector<ClockPair>& clocks, u64 piece_ns) {
  const auto megahertz = [](const ClockPair& from, const ClockPair& to) {
    return 1000 * static_cast<double>(to.ticks - from.ticks) / static_cast<double>(to.ns - from.ns);
  };
  std::optional<ClockRate> rate;
  const ClockPair* from = clocks.empty() ? nullptr : &clocks.front();
  for (const ClockPair& to : clocks) {
    if (to.ns < from->ns + piece_ns) continue;
    const double of_piece = megahertz(*from, to);
    if (!rate) rate = {.least = of_piece, .most = of_piece};
    rate = {megahertz(clocks.front(), to), std::min(rate->least, of_piece), std::max(rate->most, of_piece)};
    from = &to;
  }
  return rate;
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
        profile_unroll(records() + static_cast<size_t>(w) * capacity_, capacity_, status[w].tasks_done, {begin_, end}));
  return profile;
}

}  // namespace megalith::runtime
