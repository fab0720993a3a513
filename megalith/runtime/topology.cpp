#include "megalith/runtime/topology.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "megalith/base/error.h"

namespace megalith::runtime {

namespace {

/// The file's content, or "" where there is none: containers hide parts of /sys, and that is no error.
std::string read_if_there(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::optional<int64_t> read_number(const std::string& path) {
  std::istringstream text(read_if_there(path));
  int64_t value = 0;
  if (!(text >> value)) return std::nullopt;  // also "max"
  return value;
}

/// The value of the first line "key : value" in /proc/cpuinfo or /proc/meminfo.
std::string field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t key_end = line.find_last_not_of(" \t", colon - 1);
    if (line.substr(0, key_end + 1) != key) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Of a file in /proc that counts in KiB: "MemAvailable:   24684092 kB".
int64_t proc_bytes(const std::string& path, const std::string& key) {
  std::istringstream value(field(read_if_there(path), key));
  int64_t kib = 0;
  value >> kib;
  return kib * 1024;
}

int64_t meminfo_bytes(const std::string& root, const std::string& key) {
  return proc_bytes(root + "/proc/meminfo", key);
}

// What a limit of the process leaves beside what it has.
int64_t limit_leaves(int resource, const std::string& root, const char* key) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<int64_t>::max();
  const int64_t used = proc_bytes(root + "/proc/self/status", key);
  return std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - used, 0);
}

/// The directories whose limits hold for this process: its own cgroup and all above it, in both versions' hierarchies.
/// In a container /proc/self/cgroup may name a path that its /sys does not show; the mount's root is always looked at.
std::vector<std::string> cgroup_directories(const std::string& root, const std::string& controller) {
  std::vector<std::string> result;
  std::istringstream lines(read_if_there(root + "/proc/self/cgroup"));  // "4:memory:/a/b" or "0::/a/b"
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (unified ? "" : "/" + controller);
    for (std::string path = line.substr(second + 1); path.size() > 1; path.resize(path.rfind('/')))
      result.push_back(mount + path);
    result.push_back(mount);
  }
  return result;
}

double quota_cores(const std::string& root) {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::string& directory : cgroup_directories(root, "cpu")) {
    double quota = 0, period = 0;
    std::istringstream v2(read_if_there(directory + "/cpu.max"));  // "150000 100000" or "max 100000"
    if (v2 >> quota >> period && period > 0) cores = std::min(cores, quota / period);
    quota = static_cast<double>(read_number(directory + "/cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(read_number(directory + "/cpu.cfs_period_us").value_or(0));
    if (quota > 0 && period > 0) cores = std::min(cores, quota / period);
  }
  return std::isinf(cores) ? 0 : cores;
}

struct CgroupMemory {
  int64_t limit = std::numeric_limits<int64_t>::max();
  int64_t available = std::numeric_limits<int64_t>::max();
};

CgroupMemory cgroup_memory(const std::string& root) {
  CgroupMemory result;
  for (const std::string& directory : cgroup_directories(root, "memory")) {
    for (auto [limit_file, usage_file] :
         {std::pair("/memory.max", "/memory.current"), std::pair("/memory.limit_in_bytes", "/memory.usage_in_bytes")}) {
      const std::optional<int64_t> limit = read_number(directory + limit_file);
      if (!limit || *limit <= 0) continue;
      result.limit = std::min(result.limit, *limit);
      // Page cache counts as usage but gives way, also that of files that were read twice. In version 1 the usage is
      // that of all groups below as well, and so are the numbers that begin with "total_".
      std::istringstream stat(read_if_there(directory + "/memory.stat"));
      int64_t own = 0, total = 0, value = 0;
      for (std::string key; stat >> key >> value;) {
        if (key == "inactive_file" || key == "active_file") own += value;
        if (key == "total_inactive_file" || key == "total_active_file") total += value;
      }
      const int64_t cache = std::max(own, total);
      const int64_t usage = read_number(directory + usage_file).value_or(0);
      result.available = std::min(result.available, std::max<int64_t>(0, *limit - usage + cache));
    }
  }
  return result;
}

std::vector<CpuCache> caches(const std::string& root, int core) {
  std::vector<CpuCache> result;
  for (int index = 0;; ++index) {
    const std::string directory = fmt::format("{}/sys/devices/system/cpu/cpu{}/cache/index{}", root, core, index);
    const std::optional<int64_t> level = read_number(directory + "/level");
    if (!level) return result;
    CpuCache cache;
    cache.level = static_cast<int>(*level);
    std::istringstream(read_if_there(directory + "/type")) >> cache.type;
    char unit = 0;
    std::istringstream size(read_if_there(directory + "/size"));  // "2048K"
    if (size >> cache.bytes && size >> unit) cache.bytes *= unit == 'K' ? 1024 : unit == 'M' ? 1 << 20 : 1;
    std::istringstream sharing(read_if_there(directory + "/shared_cpu_list"));  // "0-3,8-11"
    cache.num_sharing = 0;
    for (std::string part; std::getline(sharing, part, ',');) {
      int first = 0, last = 0;
      char dash = 0;
      std::istringstream range(part);
      if (range >> first) cache.num_sharing += range >> dash >> last ? last - first + 1 : 1;
    }
    cache.num_sharing = std::max(cache.num_sharing, 1);
    result.push_back(cache);
  }
}

/// In the order of the table: what a kernel writer wants to know, out of the hundred flags that a kernel lists.
std::vector<std::string> simd_flags(const std::string& cpuinfo) {
  static const char* const kKnown[] = {
      "sse4_2",   "avx",         "f16c",        "fma",         "avx2",     "avx_vnni", "avx512f",  "avx512bw",
      "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",          // x86
      "asimd",    "asimdhp",     "asimddp",     "bf16",        "i8mm",     "sve",      "sve2",     "sme"};  // aarch64
  std::istringstream words(field(cpuinfo, "flags") + " " + field(cpuinfo, "Features"));
  std::set<std::string> present;
  for (std::string word; words >> word;) present.insert(word);
  std::vector<std::string> result;
  for (const char* name : kKnown)
    if (present.count(name)) result.push_back(name);
  return result;
}

}  // namespace

std::vector<int> affinity_cores() {
  // The kernel refuses a mask smaller than its own, so the mask grows until it fits.
  for (int size = 1024;; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    std::vector<int> cores;
    const int code = sched_getaffinity(0, bytes, set);
    if (code == 0)
      for (int core = 0; core < size; ++core)
        if (CPU_ISSET_S(core, bytes, set)) cores.push_back(core);
    CPU_FREE(set);
    if (code == 0) return cores;
    if (errno != EINVAL || size > (1 << 20)) throw system_error("sched_getaffinity");
  }
}

int CpuTopology::num_usable() const {
  int usable = static_cast<int>(cores.size());
  // A quota of 1.5 cores makes a second spinning worker sleep half of the time, and the first waits for it: round down.
  if (quota_cores > 0) usable = std::min(usable, static_cast<int>(std::floor(quota_cores)));
  return std::max(usable, 1);
}

CpuTopology cpu_topology(const std::string& root) {
  CpuTopology topology;
  const std::string cpuinfo = read_if_there(root + "/proc/cpuinfo");
  topology.model = field(cpuinfo, "model name");
  topology.simd = simd_flags(cpuinfo);
  topology.cores = affinity_cores();
  topology.quota_cores = quota_cores(root);
  topology.memory_bytes = std::min(meminfo_bytes(root, "MemTotal"), cgroup_memory(root).limit);
  topology.caches = caches(root, topology.cores.empty() ? 0 : topology.cores[0]);
  return topology;
}

bool thread_may_use(int64_t thread_id, const std::vector<int>& cores) {
  const int size = *std::ranges::max_element(cores) + 1;
  cpu_set_t* set = CPU_ALLOC(size);
  const size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set);
  for (const int core : cores) CPU_SET_S(core, bytes, set);
  const int code = sched_setaffinity(static_cast<pid_t>(thread_id), bytes, set);
  CPU_FREE(set);
  return code == 0;
}

bool pin_this_thread(int core) { return thread_may_use(0, {core}); }

int64_t memory_available_bytes(const std::string& root) {
  const int64_t machine = meminfo_bytes(root, "MemAvailable");
  const int64_t cgroup = cgroup_memory(root).available;
  const int64_t process = std::min(limit_leaves(RLIMIT_AS, root, "VmSize"), limit_leaves(RLIMIT_DATA, root, "VmData"));
  return std::min({machine > 0 ? machine : cgroup, cgroup, process});  // without /proc: no limit known
}

}  // namespace megalith::runtime
