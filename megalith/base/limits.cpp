#include "megalith/base/limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

namespace megalith {

namespace {

// "ulimit -n is 256", in the unit that the shell has for it; "" where there is no limit.
std::string resource_text(int resource, const char* option, rlim_t unit) {
  rlimit limit{};
  // glibc's own type of `resource` is an enum in C++.
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "";
  return fmt::format("ulimit {} is {}", option, limit.rlim_cur / unit);
}

// What the innermost control group with a number says of `file` in its controller's folder; "" where none does.
std::string group_limit(const char* controller, const char* file) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (!names.empty() && ("," + names + ",").find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const std::string root = names.empty() ? "/sys/fs/cgroup" : fmt::format("/sys/fs/cgroup/{}", controller);
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      std::ifstream limit(fmt::format("{}{}/{}", root, path == "/" ? "" : path, file));
      if (std::string value; limit >> value && value != "max") return value;
      if (path.find('/') == std::string::npos || path == "/" || path.empty()) break;
    }
  }
  return "";
}

// The limits that there are, and what to do about them; `otherwise` where there is none.
std::string join(std::vector<std::string> limits, const char* advice, const char* otherwise) {
  std::erase(limits, "");
  return limits.empty() ? otherwise : fmt::format("{}: {}", fmt::join(limits, ", "), advice);
}

}  // namespace

std::string limit_text(int error) {
  const std::string memory = resource_text(RLIMIT_AS, "-v", 1024);
  switch (error) {
    case EAGAIN: {
      const std::string group = group_limit("pids", "pids.max");
      return join(
          {resource_text(RLIMIT_NPROC, "-u", 1), group.empty() ? "" : fmt::format("pids.max is {}", group), memory},
          "raise the limit of threads and processes, or end some", "the system starts no more threads: end some");
    }
    case ENOMEM:
      return join({memory, resource_text(RLIMIT_DATA, "-d", 1024)}, "raise the limit of memory, or free some",
                  "free some memory");
    case EMFILE: return join({resource_text(RLIMIT_NOFILE, "-n", 1)}, "raise the limit of open files", "");
    case ENFILE: return "the machine can open no more files: raise fs.file-max";
    case EFBIG:
      return join({resource_text(RLIMIT_FSIZE, "-f", 1024)}, "raise the limit of a file's size",
                  "the file system has no larger files");
    default: return "";
  }
}

std::string error_text(int error) {
  const std::string limit = limit_text(error);
  return limit.empty() ? strerror(error) : fmt::format("{} ({})", strerror(error), limit);
}

std::string signal_text(int signal) {
  switch (signal) {
    case SIGKILL: return "the system does so when memory runs out: free some, or see its log (dmesg)";
    case SIGXCPU: return join({resource_text(RLIMIT_CPU, "-t", 1)}, "raise the limit of time", "");
    case SIGXFSZ: return limit_text(EFBIG);
    default: return "";
  }
}

int64_t open_files_raise(int64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const auto wanted = static_cast<rlim_t>(count);
  if (limit.rlim_cur < wanted) {
    const rlimit more = {std::min(wanted, limit.rlim_max), limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
}

}  // namespace megalith
