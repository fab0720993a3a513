#include <fmt/format.h>

#include "codegen/compiled.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"

namespace megalith::codegen::testing {

namespace {

// "native" is another machine on another one.
std::string machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") || line.starts_with("flags") || line.starts_with("Features"))
      text += line + '\n';
  return text;
}

std::string run(const std::string& source, const std::string& command, const std::string& made) {
  const test::TemporaryFolder folder;
  file_write_atomic(folder / "kernel.cpp", source);
  const int code = std::system(fmt::format("cd {} && {} > log 2>&1", folder.path, command).c_str());
  MEGALITH_CHECK(code == 0, "{}\n{}", command, file_read(folder / "log"));
  return file_read(folder / made);
}

/// Held by one at a time, and let go of with the process at the latest.
class Lock {
 public:
  explicit Lock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    MEGALITH_CHECK(file_ >= 0 && flock(file_, LOCK_EX) == 0, "cannot lock {}", path);
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

}  // namespace

std::string compiled(const std::string& source, const std::string& compiler, const std::string& arguments,
                     const std::string& made) {
  const std::string command = compiler + " " + arguments;
  const char* cache = std::getenv("MEGALITH_CACHE_DIR");
  if (!cache) return run(source, command, made);
  static const std::string here = machine();
  const std::string version = run("", compiler + " --version", "log");
  const std::filesystem::path folder = std::filesystem::path(cache) / "codegen";
  std::filesystem::create_directories(folder);
  const std::string kept = folder / hash_hex(source + '\0' + command + '\0' + made + '\0' + version + '\0' + here);
  const Lock lock(kept + ".lock");  // the parts of this program begin together, and with the same
  if (std::filesystem::exists(kept)) return file_read(kept);
  std::string result = run(source, command, made);
  file_write_atomic(kept, result);
  return result;
}

}  // namespace megalith::codegen::testing
