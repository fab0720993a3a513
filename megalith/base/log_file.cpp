#include "megalith/base/log_file.h"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {

namespace {

std::mutex& file_mutex() {
  static std::mutex mutex;
  return mutex;
}
// Guarded by file_mutex().
std::FILE* file = nullptr;  // never closed while it can be written: lines may come until the very end
std::string file_path;

}  // namespace

void log_file_open(const std::string& path) {
  std::FILE* opened = ::fdopen(file_open_append(path), "a");
  if (!opened) throw system_error(fmt::format("cannot write the log file {}", path));
  const std::lock_guard lock(file_mutex());
  file = opened;
  file_path = path;
}

void log_file_line(std::string_view line) {
  const std::lock_guard lock(file_mutex());
  if (!file) return;
  std::fwrite(line.data(), 1, line.size(), file);
  if (!line.ends_with('\n')) std::fputc('\n', file);
  if (std::fflush(file) == 0) return;
  // Said once, and not through the log, whose lines come here.
  const SystemError error = system_error(fmt::format("cannot write the log file {}", file_path));
  std::fputs(fmt::format("megalith: warning: {}; it ends here\n", error.what()).c_str(), stderr);
  std::fclose(std::exchange(file, nullptr));
}

}  // namespace megalith
