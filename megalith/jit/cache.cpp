#include "megalith/jit/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/random_hex.h"
#include "megalith/base/user_folder.h"
#include "megalith/jit/cache_entry.h"
#include "megalith/jit/trust.h"

namespace megalith::jit {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFolders[] = {"kernels", "locks", "failed", "compilers"};
constexpr std::string_view kAside = ".tmp.";
constexpr size_t kKeyLength = 32;
// Failed compilations are kept for their reader; nobody reads old ones.
constexpr size_t kFailedKept = 8;
// A plan may be small, and to look at an entry takes time, whatever its size.
constexpr size_t kMaxEntries = 10000;
constexpr size_t kMaxNoteBytes = 1 << 16;
// What another process undoes at once is tried again, but not for ever: it may be the file system that refuses.
constexpr int kMaxAttempts = 100;
// Where nobody can say whether a temporary is in use: what is so old is not.
constexpr std::time_t kOldSeconds = 24 * 3600;

// Only names of this form are ever deleted, whatever else lies in the directory that a user chose as the cache.
bool is_key(std::string_view name) {
  return name.size() == kKeyLength && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool is_aside(std::string_view name) {
  return name.size() > kKeyLength && is_key(name.substr(0, kKeyLength)) && name.substr(kKeyLength).starts_with(kAside);
}

// Links in it are deleted, never followed.
void delete_tree(const std::string& path) {
  std::error_code code;
  fs::remove_all(path, code);
}

int64_t tree_bytes(const std::string& path) {
  int64_t bytes = 0;
  struct stat folder;
  if (::lstat(path.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode)) return 0;
  std::error_code code;
  for (fs::recursive_directory_iterator it(path, code), end; !code && it != end; it.increment(code)) {
    struct stat info;
    if (::lstat(it->path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
  }
  return bytes;
}

// The directories in which this process makes entries, each with the lock that says so to others.
class Workspaces {
 public:
  void add(const std::string& path, int lock) {
    const std::lock_guard guard(mutex_);
    locks_[path] = lock;
  }
  void remove(const std::string& path) {
    const std::lock_guard guard(mutex_);
    const auto found = locks_.find(path);
    if (found == locks_.end()) return;
    ::close(found->second);
    locks_.erase(found);
  }
  static Workspaces& get() {
    static auto* const all = new Workspaces;  // for whoever ends in the middle
    return *all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> locks_;
};

// Deletes a temporary that is no longer in use.
void delete_dead(const std::string& path) {
  bool is_unknown = false;
  const int lock = directory_lock(path, &is_unknown);
  if (lock >= 0) {
    delete_tree(path);
    ::close(lock);
    return;
  }
  struct stat info;
  if (is_unknown && ::lstat(path.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtim.tv_sec > kOldSeconds)
    delete_tree(path);
}

// Made on first use, deleted when this process (and no child of it) ends.
class TemporaryDirectory {
 public:
  /// `why`: what to say if it cannot be made either.
  explicit TemporaryDirectory(const std::string& why) {
    const char* const variable = std::getenv("TMPDIR");
    const std::string base = variable && variable[0] == '/' ? variable : "/tmp";
    const std::string advice = "set MEGALITH_CACHE_DIR or TMPDIR to a directory that only you can write";
    if (const std::string reason = distrust_of_folder(base); !reason.empty())
      throw SystemError(fmt::format("[jit] {}: {}; {}", why, reason, advice));
    clear_up(base);
    path_ = base + kName + "XXXXXX";
    if (!::mkdtemp(path_.data()))
      throw SystemError(fmt::format("[jit] {}: cannot create {}: {}; {}", why, path_, std::strerror(errno), advice));
    lock_ = directory_lock(path_);
  }
  ~TemporaryDirectory() {
    if (owner_ != ::getpid()) return;
    delete_tree(path_);
    if (lock_ >= 0) ::close(lock_);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  static constexpr const char* kName = "/megalith-cache-";

  // Those of processes that were killed.
  static void clear_up(const std::string& base) {
    for (const std::string& name : names_in(base)) {
      struct stat info;
      const std::string path = base + "/" + name;
      // One that has just been made may not have its lock yet.
      if (path.starts_with(base + kName) && ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
          info.st_uid == ::geteuid() && std::time(nullptr) - info.st_mtim.tv_sec > 60)
        delete_dead(path);
    }
  }

  std::string path_;
  int lock_ = -1;
  pid_t owner_ = ::getpid();
};

}  // namespace

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
  return path("kernels", fmt::format("{}{}{}", key, kAside, random_hex().substr(0, 16)));
}

std::string KernelCache::distrust() const {
  if (std::string reason = distrust_of_folder(directory_); !reason.empty()) return reason;
  for (const char* folder : kFolders) {
    struct stat info;
    if (::lstat(path(folder).c_str(), &info) != 0) continue;
    if (!S_ISDIR(info.st_mode)) return fmt::format("{} is no directory", path(folder));
    if (std::string reason = jit::distrust(path(folder), info); !reason.empty()) return reason;
  }
  return "";
}

CacheLock KernelCache::lock(const std::string& key, const LockLimits& limits) const {
  if (!distrust().empty()) return {};
  const std::string file = path("locks", key);
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    try {
      directory_create(path("locks"), 0700);
    } catch (const SystemError&) { return {}; }
    errno = 0;
    CacheLock held = lock_wait(file, limits);
    const bool folder_went = !held.held() && errno == ENOENT;  // clear() took it meanwhile
    if (held.held()) sweep(key);                               // what the dead have left
    if (!folder_went) return held;
  }
  return {};
}

bool KernelCache::find_into(const std::string& key, EntryFiles* files) const {
  const std::string entry = path("kernels", key);
  if (!file_is_named(entry) || !distrust().empty()) return false;
  if (!entry_damage(entry, key, files).empty()) {
    remove_damaged(key);
    return false;
  }
  // A failure means a read-only cache, whose entries are as good.
  ::utimensat(AT_FDCWD, entry.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return true;
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  return find_into(key, nullptr) ? std::optional(path("kernels", key)) : std::nullopt;
}

std::optional<EntryFiles> KernelCache::find_files(const std::string& key) const {
  EntryFiles files;
  return find_into(key, &files) ? std::optional(std::move(files)) : std::nullopt;
}

// Looks again under the lock: files that do not fit each other may be those of two entries, of which another process
// has just replaced one by the other. Who holds the lock makes the entry anew in any case.
void KernelCache::remove_damaged(const std::string& key) const {
  try {
    directory_create(path("locks"), 0700);
  } catch (const SystemError&) { return; }  // a cache that can only be read
  const CacheLock held = lock_try(path("locks", key));
  const std::string entry = path("kernels", key);
  const std::string what = entry_damage(entry, key);
  if (!held.held() || what.empty() || !file_is_named(entry)) return;
  log_warn("the cache entry {} is damaged ({}); it is made again", entry, what);
  remove(key);
}

std::string KernelCache::workspace(const std::string& key) const {
  if (const std::string reason = distrust(); !reason.empty()) throw SystemError(reason);
  for (int attempt = 0;; ++attempt) {
    directory_create(path("kernels"), 0700);
    const std::string directory = aside(key);
    const bool is_made = ::mkdir(directory.c_str(), 0700) == 0;
    // clear() of another process may take the folder in which this one is just being made.
    if (!is_made && (errno != ENOENT || attempt == kMaxAttempts))
      throw system_error(fmt::format("cannot create the directory {}", directory));
    if (!is_made) continue;
    bool is_unknown = false;
    const int lock = directory_lock(directory, &is_unknown);
    if (lock >= 0) Workspaces::get().add(directory, lock);
    // Not to be locked, or no longer there: somebody clears up, who has seen it before it was locked.
    if ((lock >= 0 && file_exists(directory)) || is_unknown) return directory;
    Workspaces::get().remove(directory);
    if (attempt == kMaxAttempts) throw SystemError(fmt::format("{} is deleted as soon as it is made", directory));
  }
}

std::string KernelCache::store(const std::string& key, const std::string& name, const std::string& workspace) const {
  entry_seal(workspace, key, name);
  const std::string entry = path("kernels", key);
  // A directory is not renamed over a full one, so an old entry steps aside first. Whoever looks in between sees a
  // miss.
  for (int attempt = 0; ::rename(workspace.c_str(), entry.c_str()) != 0; ++attempt) {
    if ((errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) || attempt == kMaxAttempts)
      throw system_error(fmt::format("cannot rename {} to {}", workspace, entry));
    remove(key);
  }
  Workspaces::get().remove(workspace);
  if (const int fd = ::open(path("kernels").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);  // the entry is whole, and may be lost with the machine's power
    ::close(fd);
  }
  trim(key);
  return entry;
}

void KernelCache::discard(const std::string& workspace) const {
  delete_tree(workspace);
  Workspaces::get().remove(workspace);
}

std::string KernelCache::keep_failed(const std::string& key, const std::string& workspace) const {
  const std::string place = path("failed", key);
  try {
    directory_create(path("failed"), 0700);
  } catch (const SystemError&) { return workspace; }
  delete_tree(place);
  if (::rename(workspace.c_str(), place.c_str()) != 0) return workspace;
  Workspaces::get().remove(workspace);
  trim_failed();
  return place;
}

std::string KernelCache::note(const std::string& key) const {
  const std::string file = path("compilers", key);
  struct stat info;
  if (::lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !jit::distrust(file, info).empty() ||
      !distrust().empty())
    return "";
  try {
    return file_read(file, kMaxNoteBytes);
  } catch (const SystemError&) { return ""; }
}

void KernelCache::note_set(const std::string& key, const std::string& text) const {
  if (!distrust().empty()) return;
  try {
    directory_create(path("compilers"), 0700);
    const std::string file = path("compilers", key);
    ::unlink(file.c_str());  // a link is not written through
    file_write_atomic(file, text, 0600);
  } catch (const SystemError&) {
    // A cache that cannot be written; the next process asks again.
  }
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
               directory_.empty() ? "of this user" : directory_, reason, directory.path());
  }
  KernelCache cache(directory.path(), limit_bytes_);
  cache.temporary_ = true;
  return cache;
}

std::vector<CacheEntry> KernelCache::list() const {
  // With the time of use in nanoseconds, as it was at one look: another process may use an entry meanwhile.
  std::vector<std::pair<int64_t, CacheEntry>> found;
  for (const std::string& name : names_in(path("kernels"))) {
    if (!is_key(name)) continue;
    CacheEntry entry{.key = name, .directory = path("kernels", name)};
    struct stat info;
    if (::lstat(entry.directory.c_str(), &info) != 0) continue;
    entry.used_at = info.st_mtim.tv_sec;
    entry.bytes = tree_bytes(entry.directory);
    entry.name = entry_name(entry.directory);  // one that is damaged is listed and evicted like any other
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

void KernelCache::sweep(const std::string& key) const {
  for (const std::string& name : names_in(path("kernels")))
    if (is_aside(name) && name.starts_with(key)) delete_dead(path("kernels", name));
}

void KernelCache::trim(const std::string& spare_key) const {
  sweep("");
  const std::vector<CacheEntry> entries = list();
  int64_t total = 0;
  for (const CacheEntry& entry : entries) total += entry.bytes;
  for (size_t i = entries.size(); i-- > 0 && (total > limit_bytes_ || i >= kMaxEntries);) {
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
    if (is_key(name)) lock_try(path("locks", name));  // one that nobody holds goes as it is let go
  // Only empty folders go; a process that is compiling keeps its own.
  for (const char* folder : kFolders) ::rmdir(path(folder).c_str());
  return before - total();
}

}  // namespace megalith::jit
