// Ctrl-C while something runs that can be stopped.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace megalith::tools {

/// While it lives, the first Ctrl-C calls `stop`, and again every few milliseconds, because the first call may come a
/// moment before there is something to stop. The second Ctrl-C ends the process at once.
///
/// The signal is taken by a thread of its own and not by a handler, so `stop` may do what it likes. Make the guard
/// before other threads: they inherit the blocked signal.
class InterruptGuard {
 public:
  explicit InterruptGuard(std::function<void()> stop);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;

  bool interrupted() const { return interrupted_; }

 private:
  void watch();

  std::function<void()> stop_;
  std::atomic<bool> interrupted_{false}, over_{false};
  std::thread thread_;
};

}  // namespace megalith::tools
