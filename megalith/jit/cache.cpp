#include "megalith/jit/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/interruption.h"
#include "megalith/base/json_reason.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/user_folder.h"

namespace megalith::jit {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFolders[] = {"kernels", "locks", "failed", "compilers"};
constexpr const char* kInfo = "info.json";
constexpr std::string_view kAside = ".tmp.";
constexpr size_t kKeyLength = 32;
// Failed compilations are kept for their reader; nobody reads old ones.
constexpr size_t kFailedKept = 8;
// What another process undoes at once is tried again, but not for ever: it may be the file system that refuses.
constexpr int kMostAttempts = 100;

// Only names of this form are ever deleted, whatever else lies in the directory that a user chose as the cache.
bool is_key(std::string_view name) {
  return name.size() == kKeyLength && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool is_aside(std::string_view name) {
  return name.size() > kKeyLength && is_key(name.substr(0, kKeyLength)) && name.substr(kKeyLength).starts_with(kAside);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code))
    names.push_back(it->path().filename());
  std::ranges::sort(names);
  return names;
}

void delete_tree(const std::string& path) {
  std::error_code code;
  fs::remove_all(path, code);
}

int64_t tree_bytes(const std::string& path) {
  int64_t bytes = 0;
  std::error_code code;
  for (fs::recursive_directory_iterator it(path, code), end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

void sync(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && ::fsync(fd) == 0;
  const SystemError error = system_error(fmt::format("cannot sync {}", path));
  if (fd >= 0) ::close(fd);
  if (!ok) throw error;
}

// What is wrong with the entry; "" if it is complete. A file that is not listed does no harm.
std::string damage(const std::string& directory) {
  try {
    const auto info = nlohmann::json::parse(file_read(directory + "/" + kInfo));
    for (const auto& [name, want] : info.at("files").items()) {
      const std::string content = file_read(directory + "/" + name);
      if (static_cast<int64_t>(content.size()) != want.at("bytes").get<int64_t>())
        return fmt::format("{} has {} bytes, not {}", name, content.size(), want.at("bytes").get<int64_t>());
      if (hash_hex(content) != want.at("hash").get<std::string>()) return fmt::format("{} has changed", name);
    }
    return "";
  } catch (const nlohmann::json::exception& error) {
    return fmt::format("{} is not what was written: {}", kInfo, json_reason(error.what()));
  } catch (const std::exception& error) { return error.what(); }
}

// Made on first use, deleted when this process (and no child of it) ends.
struct TemporaryDirectory {
  std::string path;
  pid_t owner = ::getpid();
  /// `why`: what to say if it cannot be made either.
  explicit TemporaryDirectory(const std::string& why) {
    const char* const base = std::getenv("TMPDIR");
    path = std::string(base && *base ? base : "/tmp") + "/megalith-XXXXXX";
    if (!::mkdtemp(path.data()))
      throw SystemError(fmt::format(
          "[jit] {}: cannot create {}: {}; set MEGALITH_CACHE_DIR or TMPDIR to a directory that can be written", why,
          path, std::strerror(errno)));
  }
  ~TemporaryDirectory() {
    if (owner == ::getpid()) delete_tree(path);
  }
};

// As flock() says it. Who sees nothing happen for a while is told why.
int wait_for_lock(int fd, const std::string& file) {
  constexpr auto kLook = std::chrono::milliseconds(10), kPatience = std::chrono::milliseconds(2000);
  const auto begin = std::chrono::steady_clock::now();
  for (bool told = false;;) {
    if (!::flock(fd, LOCK_EX | LOCK_NB)) return 0;
    if (errno != EWOULDBLOCK && errno != EINTR) return -1;
    interruption_check();
    if (!told && std::chrono::steady_clock::now() - begin > kPatience) {
      log_warn("waiting for another process, which compiles the same kernel and holds {}", file);
      told = true;
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

// ---- locks -----------------------------------------------------------------------------------

CacheLock::CacheLock(CacheLock&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

CacheLock& CacheLock::operator=(CacheLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

CacheLock::~CacheLock() {
  if (fd_ < 0) return;
  // Deleted while held, so no lock files pile up; whoever waited on this file sees that it is gone and takes a new one.
  ::unlink(path_.c_str());
  ::close(fd_);
}

CacheLock KernelCache::lock_file(const std::string& key, bool wait) const {
  const std::string file = path("locks", key);
  for (int attempt = 0;;) {
    std::error_code code;
    fs::create_directories(path("locks"), code);
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT && ++attempt < kMostAttempts) continue;  // clear() took the folder meanwhile
    if (fd < 0) return {};
    int failed = 0;
    try {
      failed = wait ? wait_for_lock(fd, file) : ::flock(fd, LOCK_EX | LOCK_NB);
    } catch (...) {
      ::close(fd);
      throw;
    }
    struct stat held, there;
    if (!failed && ::fstat(fd, &held) == 0 && ::stat(file.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
        held.st_dev == there.st_dev)
      return CacheLock(file, fd);
    ::close(fd);
    if (failed) return {};
  }
}

CacheLock KernelCache::lock(const std::string& key) const {
  CacheLock held = lock_file(key, true);
  // Only the holder of the lock writes beside this key, so what lies there now was left by the dead.
  if (held.held())
    for (const std::string& name : names_in(path("kernels")))
      if (is_aside(name) && name.starts_with(key)) delete_tree(path("kernels", name));
  return held;
}

// ---- the cache ---------------------------------------------------------------------------------

KernelCache KernelCache::from_environment() {
  const int64_t limit = option_integer("MEGALITH_CACHE_LIMIT_MB") << 20;
  if (option_is_set("MEGALITH_CACHE_DIR")) return KernelCache(option_value("MEGALITH_CACHE_DIR"), limit);
  if (std::string folder = user_folder("XDG_CACHE_HOME", ".cache"); !folder.empty())
    return KernelCache(std::move(folder), limit);
  return KernelCache("", limit).temporary("neither MEGALITH_CACHE_DIR nor HOME is set");
}

KernelCache::KernelCache(std::string directory, int64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {
  // The compiler runs in the entry's directory, so a relative path would mean something else there.
  std::error_code code;
  if (!directory_.empty()) directory_ = fs::absolute(directory_, code).lexically_normal().string();
}

std::string KernelCache::path(const char* folder, const std::string& name) const {
  return name.empty() ? directory_ + "/" + folder : directory_ + "/" + folder + "/" + name;
}

std::string KernelCache::aside(const std::string& key) const {
  static std::atomic<int> serial = 0;
  return path("kernels", fmt::format("{}{}{}.{}", key, kAside, ::getpid(), serial++));
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  const std::string entry = path("kernels", key);
  if (!file_exists(entry)) return std::nullopt;
  if (!damage(entry).empty()) {
    remove_damaged(key);
    return std::nullopt;
  }
  // A failure means a read-only cache, whose entries are as good.
  ::utimensat(AT_FDCWD, entry.c_str(), nullptr, 0);
  return entry;
}

// Looks again under the lock: files that do not fit each other may be those of two entries, of which another process
// has just replaced one by the other. Who holds the lock makes the entry anew in any case.
void KernelCache::remove_damaged(const std::string& key) const {
  const CacheLock held = lock_file(key, false);
  const std::string entry = path("kernels", key);
  const std::string what = damage(entry);
  if (!held.held() || what.empty() || !file_exists(entry)) return;
  log_warn("the cache entry {} is damaged ({}); it is made again", entry, what);
  remove(key);
}

std::string KernelCache::workspace(const std::string& key) const {
  const std::string directory = aside(key);
  // clear() of another process may take the folder in which this one is just being made.
  std::error_code code;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    fs::create_directories(directory, code);
    if (code != std::errc::no_such_file_or_directory) break;
  }
  if (code) directory_create(directory);  // once more, with an error that says why
  return directory;
}

std::string KernelCache::store(const std::string& key, const std::string& name, const std::string& workspace) const {
  nlohmann::ordered_json info = {{"name", name}, {"key", key}, {"created", static_cast<int64_t>(std::time(nullptr))}};
  for (const std::string& file : names_in(workspace)) {
    const std::string content = file_read(workspace + "/" + file);
    info["files"][file] = {{"bytes", content.size()}, {"hash", hash_hex(content)}};
    sync(workspace + "/" + file);
  }
  // A model's folder may be called anything; JSON takes UTF-8 only.
  const auto replace = nlohmann::json::error_handler_t::replace;
  file_write_atomic(workspace + "/" + kInfo, info.dump(2, ' ', false, replace) + "\n");
  sync(workspace);

  const std::string entry = path("kernels", key);
  // A directory is not renamed over a full one, so an old entry steps aside first. Whoever looks in between sees a
  // miss.
  for (int attempt = 0; ::rename(workspace.c_str(), entry.c_str()) != 0; ++attempt) {
    if ((errno != EEXIST && errno != ENOTEMPTY) || attempt == kMostAttempts)
      throw system_error(fmt::format("cannot rename {} to {}", workspace, entry));
    remove(key);
  }
  sync(path("kernels"));
  trim(key);
  return entry;
}

void KernelCache::discard(const std::string& workspace) const { delete_tree(workspace); }

std::string KernelCache::keep_failed(const std::string& key, const std::string& workspace) const {
  const std::string place = path("failed", key);
  std::error_code code;
  fs::create_directories(path("failed"), code);
  delete_tree(place);
  if (::rename(workspace.c_str(), place.c_str()) != 0) return workspace;
  trim_failed();
  return place;
}

void KernelCache::trim_failed() const {
  std::vector<std::pair<fs::file_time_type, std::string>> kept;
  for (const std::string& name : names_in(path("failed"))) {
    std::error_code code;
    if (is_key(name)) kept.emplace_back(fs::last_write_time(path("failed", name), code), name);
  }
  std::ranges::sort(kept, std::greater{});
  for (size_t i = kFailedKept; i < kept.size(); ++i) delete_tree(path("failed", kept[i].second));
}

KernelCache KernelCache::temporary(const std::string& reason) const {
  static TemporaryDirectory directory(
      fmt::format("the kernel cache {} cannot be used ({}), nor can the temporary directory of this run",
                  directory_.empty() ? "of this user" : directory_, reason));
  static std::mutex mutex;
  static std::set<std::string> warned;
  {
    std::lock_guard guard(mutex);
    if (warned.insert(directory_).second)
      log_warn("the kernel cache {} cannot be used ({}); kernels of this run go to {}",
               directory_.empty() ? "of this user" : directory_, reason, directory.path);
  }
  KernelCache cache(directory.path, limit_bytes_);
  cache.temporary_ = true;
  return cache;
}

std::vector<CacheEntry> KernelCache::list() const {
  // With the time of use in nanoseconds, as it was at one look: another process may use an entry meanwhile.
  std::vector<std::pair<int64_t, CacheEntry>> found;
  for (const std::string& name : names_in(path("kernels"))) {
    if (!is_key(name)) continue;
    CacheEntry entry{.key = name, .name = "?", .directory = path("kernels", name)};
    struct stat info;
    if (::stat(entry.directory.c_str(), &info) != 0) continue;
    entry.used_at = info.st_mtim.tv_sec;
    entry.bytes = tree_bytes(entry.directory);
    try {
      entry.name = nlohmann::json::parse(file_read(entry.directory + "/" + kInfo)).at("name").get<std::string>();
    } catch (const std::exception&) {
      // Damaged: listed with its size, so that it is evicted like any other.
    }
    const int64_t used_at_ns = entry.used_at * 1'000'000'000 + info.st_mtim.tv_nsec;
    found.emplace_back(used_at_ns, std::move(entry));
  }
  std::ranges::stable_sort(found, std::greater{}, &std::pair<int64_t, CacheEntry>::first);
  std::vector<CacheEntry> entries;
  for (auto& item : found) entries.push_back(std::move(item.second));
  return entries;
}

int64_t KernelCache::bytes() const {
  int64_t bytes = 0;
  for (const CacheEntry& entry : list()) bytes += entry.bytes;
  return bytes;
}

void KernelCache::remove(const std::string& key) const {
  // Renamed first: a reader finds the entry whole or not at all. A reader that has loaded it keeps its mapping.
  const std::string grave = aside(key);
  if (::rename(path("kernels", key).c_str(), grave.c_str()) == 0) delete_tree(grave);
}

void KernelCache::trim(const std::string& spare_key) const {
  for (const std::string& name : names_in(path("kernels")))
    if (is_aside(name) && !name.starts_with(spare_key.empty() ? "-" : spare_key))
      if (CacheLock held = lock_file(name.substr(0, kKeyLength), false); held.held())
        delete_tree(path("kernels", name));

  const std::vector<CacheEntry> entries = list();
  int64_t total = 0;
  for (const CacheEntry& entry : entries) total += entry.bytes;
  for (size_t i = entries.size(); i-- > 0 && total > limit_bytes_;) {
    if (entries[i].key == spare_key) continue;
    log_debug("cache: {} ({}) is evicted", entries[i].name, entries[i].key);
    remove(entries[i].key);
    total -= entries[i].bytes;
  }
}

int64_t KernelCache::clear() const {
  auto total = [&] {
    int64_t bytes = 0;
    for (const char* folder : kFolders) bytes += tree_bytes(path(folder));
    return bytes;
  };
  const int64_t before = total();
  for (const CacheEntry& entry : list()) remove(entry.key);
  trim();  // temporaries, except those of a process that is compiling now
  for (const char* folder : {"failed", "compilers"})
    for (const std::string& name : names_in(path(folder)))
      if (is_key(name)) delete_tree(path(folder, name));
  for (const std::string& name : names_in(path("locks")))
    if (is_key(name)) lock_file(name, false);  // one that nobody holds goes as it is let go
  // Only empty folders go; a process that is compiling keeps its own.
  for (const char* folder : kFolders) ::rmdir(path(folder).c_str());
  return before - total();
}

}  // namespace megalith::jit
