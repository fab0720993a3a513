// How often a mailbox is looked at that wakes nobody: a step's records come as long after those of the step before it as those
// came. Until shortly before, whoever waits sleeps; then it looks without a pause, since a sleep may last some tenths of a
// millisecond longer than it was asked for, on a virtual machine mostly, and a token that waits for that is late.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace megalith::engine {

class RecordPace {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  /// Of who sleeps without knowing what for, and the longest sleep: something else may want to be noticed.
  static constexpr Nanoseconds kPoll = std::chrono::microseconds(20), kLongest = std::chrono::microseconds(200);

  /// A record was taken. Times are those of a clock that does not go back.
  void note(Nanoseconds now) {
    const Nanoseconds gap = now - last_;
    last_ = now;
    if (gap < kTogether) return;  // of one step
    expected_ = std::min(gap, before_);
    before_ = gap;
  }

  /// What may be slept before the next look; zero when a record is to be expected at any moment.
  Nanoseconds rest(Nanoseconds now) const {
    const Nanoseconds since = now - last_;
    if (expected_ > kUnknown) return kPoll;
    const Nanoseconds early = std::max(expected_ / 4, kLateness);
    if (since + early < expected_) return std::min(expected_ - early - since, kLongest);
    return since < expected_ + early ? Nanoseconds(0) : kPoll;
  }

 private:
  static constexpr Nanoseconds kTogether = std::chrono::microseconds(50), kLateness = std::chrono::microseconds(400),
                               kUnknown = std::chrono::milliseconds(100);

  Nanoseconds last_{0}, before_ = Nanoseconds::max(), expected_ = Nanoseconds::max();
};

}  // namespace megalith::engine
