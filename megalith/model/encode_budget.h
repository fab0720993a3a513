// What turning one text into tokens may take, in all its parts together. A tokenizer.json is a program of others: its
// normalizers may multiply a text, and its regular expressions may look through all of it, and backtrack, from every
// place of it, in each of many steps. The limits of PCRE2 are for one place and one step; these are for the text.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace megalith {

/// The longest text: far beyond every context (a million tokens are about 5 MB), and little enough that its tokens,
/// which take some 60 bytes for each of its bytes while a word of that length is merged, do not fill a machine.
constexpr size_t kMaxTextBytes = 16 << 20;

class EncodeBudget {
 public:
  /// For a text of so many bytes; UserError if it is too long to begin with.
  explicit EncodeBudget(size_t text_bytes);

  /// An error if the text has become longer than normalizing can explain.
  void check_bytes(size_t bytes) const {
    if (bytes > most_bytes_) fail_bytes();
  }
  /// An error if this thread has worked on the text for too long. Says what time it is; takes some 30 ns.
  std::chrono::steady_clock::time_point check_time();
  /// The same, once in many steps of some nanoseconds.
  void charge_steps(size_t steps) {
    if ((steps_ += steps) >= kStepsBetweenLooks) steps_ = 0, check_time();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kStepsBetweenLooks = 1 << 16;

  [[noreturn]] void fail_bytes() const;

  size_t text_bytes_;
  size_t most_bytes_;
  size_t steps_ = 0;
  std::chrono::nanoseconds begin_;  // of the thread's own time
  std::chrono::nanoseconds most_;
  Clock::time_point next_look_;  // before this, the thread cannot have used up its time
};

}  // namespace megalith
