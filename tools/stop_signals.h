// Ctrl-C and SIGTERM for a process that has something to finish first.
#pragma once

#include <chrono>

namespace megalith::tools {

/// While it lives, the two signals no longer end the process; it learns of them by waiting. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;

  /// The next one's number; 0 if none came in time.
  int wait(std::chrono::milliseconds patience);
  /// The next one's number, however long it takes.
  int wait();
  /// Ends the process as that signal does, which tells whoever waits for it why.
  [[noreturn]] static void die_of(int signal);

 private:
  int pipe_[2];
};

}  // namespace megalith::tools
