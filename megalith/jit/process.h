// Runs a command without a shell, captures what it says, and never waits for ever.
#pragma once

#include <string>
#include <vector>

#include "megalith/jit/patience.h"

namespace megalith::jit {

struct ProcessResult {
  int exit_code = -1;  // -1: ended by a signal or a timeout
  int signal = 0;
  bool timed_out = false;
  std::string output;  // stdout and stderr as they came, at most kProcessOutputLimit
  double ms = 0;

  bool ok() const { return exit_code == 0; }
  /// "exited with code 1", "was killed by signal 9 (Killed)", "did not finish within 600 s".
  std::string ending() const;
};

constexpr size_t kProcessOutputLimit = 1 << 20;

/// Folders of a command; both may be missing.
struct ProcessFolders {
  std::string temporary;   // for its temporary files
  std::string unfinished;  // deleted if this process ends before the command
};

/// Runs `command` (its first word is a path) in `directory` with LC_ALL=C and no stdin, in a process group of its own.
/// SystemError if it cannot start. It and all that it started are ended at the timeout, when the wait for them is
/// interrupted (base/interruption.h), when the command ends, and when this process ends, be it by SIGKILL.
ProcessResult process_run(const std::vector<std::string>& command, const std::string& directory, PatienceLimits limits,
                          const ProcessFolders& folders = {});

/// The command as a line for a shell, with quotes where they are needed.
std::string command_line(const std::vector<std::string>& command);

}  // namespace megalith::jit
