// Memory and time that a grammar may take of a thread. Whoever sends a grammar writes a program that the host runs: a few
// hundred bytes of it may ask for gigabytes, or for an hour. xgrammar has no limits of its own, so each of its allocations looks
// here (its library is linked to the functions below, cmake/xgrammar.cmake), and throws when it is enough.
//
// Memory is what the process has grown by meanwhile: what kills a server, and cheaper to know than what each of its threads
// has. What others allocate at the same time counts, so limits are generous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace megalith::grammar {

struct BudgetLimits {
  int64_t bytes;        // that the process may grow by
  int64_t nanoseconds;  // of the thread's processor time, which does not pass while others have the core
};

struct BudgetExceeded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// As long as it lives, what xgrammar does on this thread is limited. One at a time.
class Budget {
 public:
  explicit Budget(const BudgetLimits& limits);
  ~Budget();
  Budget(const Budget&) = delete;

  /// In front of an allocation: BudgetExceeded if it is too much, or too late.
  void look(size_t bytes);

  /// What xgrammar warned of on this thread; the first of it.
  const std::string& warning() const { return warning_; }
  static void warn(const std::string& text);

 private:
  void check(size_t bytes);

  const BudgetLimits limits_;
  const int64_t begin_ns_;
  int64_t begin_bytes_ = -1;  // of the process, once somebody has looked
  const int exceptions_;      // that were under way
  uint32_t count_ = 0;
  const char* exceeded_ = nullptr;
  std::string warning_ = {};
};

}  // namespace megalith::grammar
