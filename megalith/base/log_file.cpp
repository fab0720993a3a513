#include "megalith/base/log_file.h"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>

#include "megalith/base/error.h"

namespace megalith {

namespace {

std::mutex& file_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::FILE* file = nullptr;  // never closed: lines may come until the very end; guarded by file_mutex()

}  // namespace

void log_file_open(const std::string& path) {
  std::FILE* opened = std::fopen(path.c_str(), "a");
  if (!opened) throw system_error(fmt::format("cannot write the log file {}", path));
  const std::lock_guard lock(file_mutex());
  file = opened;
}

void log_file_line(std::string_view line) {
  const std::lock_guard lock(file_mutex());
  if (!file) return;
  std::fwrite(line.data(), 1, line.size(), file);
  if (!line.ends_with('\n')) std::fputc('\n', file);
  std::fflush(file);
}

}  // namespace megalith
