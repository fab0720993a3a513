// A progress bar or a spinner on stderr, for whatever makes a user wait: reading weights, compiling, converting.
//   reading weights  42% ▕████████            ▏ 1.2 GiB/3.1 GiB  820 MiB/s  2s
//   ⠹ compiling storyteller  12s
// On anything but a terminal, with NO_COLOR, TERM=dumb or MEGALITH_LOG=quiet, it writes nothing at all. The line is
// drawn by a thread of its own, so a worker pays one atomic add, and it is erased at the end: what is left on the
// terminal are results and log lines.
//
//   Progress progress("reading weights", total_bytes, ProgressUnit::bytes);
//   for (...) progress.advance(chunk);
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace megalith {

enum class ProgressUnit { bytes, items };

class Progress {
 public:
  /// A bar up to `total`, or a spinner if `total` is 0. Nothing is drawn during the first fifth of a second.
  explicit Progress(const std::string& message, int64_t total = 0, ProgressUnit unit = ProgressUnit::items, int fd = 2);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// From any thread.
  void advance(int64_t amount = 1) { done_.fetch_add(amount, std::memory_order_relaxed); }
  void message_set(const std::string& message);

 private:
  struct Display;
  std::atomic<int64_t> done_ = 0;
  std::unique_ptr<Display> display_;  // null where nothing is to be drawn
};

/// Erases the line that is being drawn, if any, until its next refresh; for whoever is about to write to the terminal.
void progress_erase();

// ---- the text, apart from the drawing, so that it can be tested ----

struct ProgressState {
  std::string message;
  int64_t done = 0;
  int64_t total = 0;  // 0 = unknown: a spinner
  ProgressUnit unit = ProgressUnit::items;
  double rate = 0;     // per second; 0 = unknown
  double seconds = 0;  // since the start
  int frame = 0;       // of the spinner
};

/// One line of at most `columns` characters; the bar takes what is left, and what has no room is left out.
std::string progress_line(const ProgressState& state, int columns);

/// "4s", "2m3s", "1h2m".
std::string format_seconds(double seconds);

}  // namespace megalith
