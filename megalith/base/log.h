// Log lines on stderr. Results go to stdout and never through here.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "megalith/base/message.h"

namespace megalith {

enum class LogLevel { quiet, warn, info, debug };

/// From MEGALITH_LOG unless the command line set it.
LogLevel log_level();
void log_level_set(LogLevel level);
/// Messages become fit to be shown as those of errors do: one line each, but for a table or a log.
void log_line(LogLevel level, const std::string& message);
void log_line(LogLevel level, const Lines& message);

template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() >= LogLevel::info) log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() >= LogLevel::debug) log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace megalith
