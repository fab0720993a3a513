#include "megalith/base/log.h"

#include <atomic>
#include <cstdio>

#include "megalith/base/error.h"
#include "megalith/base/log_file.h"
#include "megalith/base/options.h"
#include "megalith/base/progress.h"

namespace megalith {

namespace {

LogLevel level_from_environment() {
  const std::string name = option_value("MEGALITH_LOG");
  constexpr const char* kNames[] = {"quiet", "warn", "info", "debug"};
  for (int i = 0; i < 4; ++i)
    if (name == kNames[i]) return static_cast<LogLevel>(i);
  throw UserError(fmt::format("MEGALITH_LOG is \"{}\", want quiet, warn, info or debug", name));
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level = level_from_environment();
  return level;
}

void write_line(LogLevel level, const std::string& text) {
  constexpr const char* kPrefix[] = {"", "warning: ", "", "debug: "};
  // One write per line, so that lines of several threads do not mix.
  const std::string line = fmt::format("megalith: {}{}\n", kPrefix[static_cast<int>(level)], text);
  progress_erase();
  std::fwrite(line.data(), 1, line.size(), stderr);
  log_file_line(line);
}

}  // namespace

LogLevel log_level() { return current_level(); }
void log_level_set(LogLevel level) { current_level() = level; }

void log_line(LogLevel level, const std::string& message) {
  if (log_level() >= level) write_line(level, message_text(message));
}

void log_line(LogLevel level, const Lines& message) {
  if (log_level() >= level) write_line(level, message_text(message));
}

}  // namespace megalith
