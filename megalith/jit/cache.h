// Compiled kernels and plans on disk, shared by all processes of a user. An entry is a directory that is written aside,
// synced and renamed, so it is either complete or not there; whatever is found damaged counts as a miss and is removed.
// A lock file for each key lets many processes that want the same kernel compile it once; the system releases the lock
// of a killed process, and whoever gets it next clears away what that process left.
//
//   <cache>/kernels/<key>/                       info.json, and
//                                                of a CPU's kernel: kernel.cpp kernel.so command.txt
//                                                of a GPU's: kernel.cu kernel.ptx kernel.cubin command.txt log.txt
//                                                of a plan (jit/plan_cache.h): tasks.bin source.txt
//   <cache>/kernels/<key>.tmp.<pid>.<serial>/    being written, by the holder of the key's lock
//   <cache>/locks/<key>                          held with flock() while compiling
//   <cache>/failed/<key>/                        source, command and log of the last compilations that failed
//   <cache>/compilers/<hash>                     version strings, so that a hit need not ask the compiler
//
// A cache that cannot be written costs time, never a result: after one warning a temporary directory takes its place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace megalith::jit {

struct CacheEntry {
  std::string key;
  std::string name;  // of the kernel
  std::string directory;
  int64_t bytes = 0;
  int64_t used_at = 0;  // seconds since 1970
};

/// The lock of one key, held until the object goes. Move-only.
class CacheLock {
 public:
  CacheLock() = default;
  CacheLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  CacheLock(CacheLock&& other) noexcept;
  CacheLock& operator=(CacheLock&& other) noexcept;
  ~CacheLock();
  bool held() const { return fd_ >= 0; }

 private:
  std::string path_;
  int fd_ = -1;
};

class KernelCache {
 public:
  /// In MEGALITH_CACHE_DIR, $XDG_CACHE_HOME/megalith or ~/.cache/megalith, limited by MEGALITH_CACHE_LIMIT_MB.
  static KernelCache from_environment();
  KernelCache(std::string directory, int64_t limit_bytes);

  const std::string& directory() const { return directory_; }
  int64_t limit_bytes() const { return limit_bytes_; }

  /// Directory of the complete entry, marked as used now; a damaged one is removed and counts as none. Sizes and hashes
  /// of all files are checked: half a millisecond for a kernel of 2 MB, against a crash while loading half of one.
  std::optional<std::string> find(const std::string& key) const;

  /// Waits for the key's lock and removes what a dead holder left. Not held() where locking is impossible: go on
  /// anyway, the work is then done twice at worst.
  CacheLock lock(const std::string& key) const;

  /// A new, empty directory to build the entry in; hold the key's lock.
  std::string workspace(const std::string& key) const;
  /// Completes the workspace with info.json and renames it into place, then evicts down to the limit. Returns the
  /// entry's directory; an older entry of that key is replaced.
  std::string store(const std::string& key, const std::string& name, const std::string& workspace) const;
  void discard(const std::string& workspace) const;
  /// Moves a workspace whose compilation failed to failed/<key>, where only the newest few are kept; returns its path.
  std::string keep_failed(const std::string& key, const std::string& workspace) const;

  /// The cache that takes over when this one cannot be used for `reason`, of which it warns once: a temporary directory
  /// that goes with the process.
  KernelCache temporary(const std::string& reason) const;
  bool is_temporary() const { return temporary_; }

  /// Entries, the most recently used first.
  std::vector<CacheEntry> list() const;
  int64_t bytes() const;
  void remove(const std::string& key) const;
  /// Removes everything the cache wrote; returns the bytes freed.
  int64_t clear() const;
  /// Removes temporaries whose holder is gone, then the least recently used entries until the limit is kept.
  void trim(const std::string& spare_key = "") const;

 private:
  std::string path(const char* folder, const std::string& name = "") const;
  std::string aside(const std::string& key) const;
  CacheLock lock_file(const std::string& key, bool wait) const;
  void remove_damaged(const std::string& key) const;
  void trim_failed() const;

  std::string directory_;
  int64_t limit_bytes_ = 0;
  bool temporary_ = false;
};

}  // namespace megalith::jit
