// Turns at something that one caller uses at a time: a model, a kernel. A mutex would do, but for the callers that a mutex
// would keep waiting for ever: a signal handler that interrupted the very call it waits for, a process that was forked
// from one that was at work, a thread that waits for one that has ended. Here each of them is a UserError that says so.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <semaphore>
#include <string>
#include <string_view>
#include <utility>

namespace megalith {

class Turn {
 public:
  /// `what` is used in turns, as messages call it: "model", "kernel".
  explicit Turn(std::string what) : what_(std::move(what)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// How long it is taken for: a call on this thread, or a stream, which other calls of the thread may come between.
  enum class For { call, stream };
  /// Waits for the turn. `where`: the call that wants it, for messages. UserError where the wait would have no end; throws
  /// what interruption_check() throws.
  void take(std::string_view where, For use = For::call);
  /// From any thread.
  void give_back() noexcept;
  /// A stream that has the turn is read by this thread from now on. UserError in a process forked meanwhile.
  void pass_on(std::string_view where);

 private:
  void check_holder(std::string_view where) const;
  void check_process(std::string_view where) const;

  std::string what_;
  std::binary_semaphore free_{1};
  // Who has it, for messages and for finding out that a wait has no end; 0: nobody, or about to say so. Relaxed: a waiter
  // that sees an old value looks again.
  std::atomic<pid_t> thread_{0}, process_{0};
  std::atomic<For> use_{For::call};
};

/// Takes a turn for as long as it lives.
class TurnGuard {
 public:
  TurnGuard(Turn& turn, std::string_view where) : turn_(turn) { turn_.take(where); }
  ~TurnGuard() { turn_.give_back(); }
  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;

 private:
  Turn& turn_;
};

}  // namespace megalith
