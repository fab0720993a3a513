#include "megalith/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "megalith/base/format.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/printable.h"

namespace megalith {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFirstDrawing = std::chrono::milliseconds(200);
constexpr auto kRefresh = std::chrono::milliseconds(100);
// The rate is that of the last ten samples, five seconds: long enough to be readable, short enough to follow a change.
constexpr auto kSampleEvery = std::chrono::milliseconds(500);
constexpr size_t kSamples = 10;
constexpr int kWidestBar = 40;
constexpr int kNarrowestBar = 6;
constexpr const char* kErase = "\r\033[K";

bool can_draw(int fd) {
  if (!::isatty(fd) || option_is_set("NO_COLOR") || log_level() == LogLevel::quiet) return false;
  const char* terminal = std::getenv("TERM");  // the system's, not an option of ours
  return terminal && *terminal && std::strcmp(terminal, "dumb") != 0;
}

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Characters, not bytes: continuation bytes of UTF-8 do not count.
int width_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string cut_to(std::string text, int columns) {
  size_t end = 0;
  for (int width = 0; end < text.size(); ++end)
    if ((text[end] & 0xc0) != 0x80 && ++width > columns) break;
  text.resize(end);
  return text;
}

std::string repeat(std::string_view piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece;
  return text;
}

std::string bar(double share, int width) {
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  return "▕" + repeat("█", full) + std::string(static_cast<size_t>(width - full), ' ') + "▏";
}

std::string format_amount(double amount, ProgressUnit unit) {
  return unit == ProgressUnit::bytes ? format_bytes(amount) : fmt::format("{:.0f}", amount);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n <= 0) return;  // a terminal that is gone must not end the work
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// Lines of several displays and of the log would mix; one of them writes at a time.
std::mutex& terminal_mutex() {
  static std::mutex mutex;
  return mutex;
}
int drawn_on = -1;  // descriptor with a line that is to be erased; guarded by terminal_mutex()

}  // namespace

std::string format_seconds(double seconds) {
  const int64_t whole = std::llround(std::min(seconds, 1e9));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{}s", whole / 60, whole % 60);
  return fmt::format("{}h{}m", whole / 3600, whole % 3600 / 60);
}

std::string progress_line(const ProgressState& state, int columns) {
  constexpr std::string_view kFrames[] = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
  if (state.total <= 0) {
    std::string line = fmt::format("{} {}", kFrames[state.frame % 10], state.message);
    if (state.done > 0) line += "  " + format_amount(static_cast<double>(state.done), state.unit);
    return cut_to(line + "  " + format_seconds(state.seconds), columns);
  }
  const int64_t done = std::clamp<int64_t>(state.done, 0, state.total);
  const double share = static_cast<double>(done) / static_cast<double>(state.total);
  // Down, not to the nearest: 100% means finished.
  const std::string begin = fmt::format("{} {:3d}%", state.message, static_cast<int>(share * 100));
  std::string end = fmt::format(" {}/{}", format_amount(static_cast<double>(done), state.unit),
                                format_amount(static_cast<double>(state.total), state.unit));
  if (state.rate > 0) {
    std::string more = fmt::format("  {}/s", format_amount(state.rate, state.unit));
    // Items that take longer than a second each have a rate that says nothing; the time left does.
    if (state.unit == ProgressUnit::items && state.rate < 1) more.clear();
    if (done < state.total) more += "  " + format_seconds(static_cast<double>(state.total - done) / state.rate);
    if (width_of(begin) + width_of(end) + width_of(more) + kNarrowestBar + 3 <= columns) end += more;
  }
  const int room = columns - width_of(begin) - width_of(end) - 3;
  if (room < kNarrowestBar) return cut_to(begin + end, columns);
  return begin + " " + bar(share, std::min(room, kWidestBar)) + end;
}

struct Progress::Display {
  int fd;
  const std::atomic<int64_t>& done;
  const int64_t total;
  const ProgressUnit unit;
  const Clock::time_point start = Clock::now();

  std::mutex mutex;  // guards message and stop
  std::condition_variable wake;
  std::string message;
  bool stop = false;
  std::thread thread;

  Display(std::string message_, int64_t total_, ProgressUnit unit_, int fd_, const std::atomic<int64_t>& done_)
      : fd(fd_), done(done_), total(total_), unit(unit_), message(std::move(message_)) {
    thread = std::thread([this] { loop(); });
  }

  ~Display() {
    {
      std::lock_guard guard(mutex);
      stop = true;
    }
    wake.notify_all();
    thread.join();
    progress_erase();
  }

  void loop() {
    struct Sample {
      Clock::time_point when;
      int64_t done;
    };
    std::deque<Sample> samples = {{start, 0}};
    ProgressState state{.total = total, .unit = unit};
    std::unique_lock guard(mutex);
    auto next = start + kFirstDrawing;
    while (!wake.wait_until(guard, next, [this] { return stop; })) {
      const auto now = Clock::now();
      next = now + kRefresh;
      state.message = message;
      state.done = done.load(std::memory_order_relaxed);
      state.seconds = std::chrono::duration<double>(now - start).count();
      ++state.frame;
      if (now - samples.back().when >= kSampleEvery) {
        samples.push_back({now, state.done});
        if (samples.size() > kSamples + 1) samples.pop_front();
      }
      const double span = std::chrono::duration<double>(now - samples.front().when).count();
      state.rate = span > 0 ? static_cast<double>(state.done - samples.front().done) / span : 0;
      // One column less: a full line makes some terminals wrap.
      const std::string line = "\r" + progress_line(state, columns_of(fd) - 1) + "\033[K";
      std::lock_guard terminal(terminal_mutex());
      write_all(fd, line);
      drawn_on = fd;
    }
  }
};

Progress::Progress(const std::string& message, int64_t total, ProgressUnit unit, int fd) {
  if (!can_draw(fd)) return;
  try {
    display_ = std::make_unique<Display>(printable_line(message), total, unit, fd, done_);
  } catch (const std::system_error&) {}  // no thread for it: what is done is done without a line
}

Progress::~Progress() = default;

void Progress::message_set(const std::string& message) {
  if (!display_) return;
  std::lock_guard guard(display_->mutex);
  display_->message = printable_line(message);
}

void progress_erase() {
  std::lock_guard terminal(terminal_mutex());
  if (drawn_on >= 0) write_all(drawn_on, kErase);
  drawn_on = -1;
}

}  // namespace megalith
