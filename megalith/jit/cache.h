// Compiled kernels and plans on disk, shared by all processes of a user. An entry is a directory that is written aside,
// synced and renamed, so it is either complete or not there; whatever is found damaged counts as a miss and is removed.
// A lock file for each key lets many processes that want the same kernel compile it once; the system releases the lock
// of a killed process, and whoever gets it next clears away what that process left. An entry is code that is run: it is
// believed only where nobody but this user and root can have put it (jit/trust.h).
//
//   <cache>/kernels/<key>/                       info.json, and
//                                                of a CPU's kernel: kernel.cpp kernel.so command.txt
//                                                of a GPU's: kernel.cu kernel.ptx kernel.cubin command.txt log.txt
//                                                of a plan (jit/plan_cache.h): tasks.bin source.txt
//   <cache>/kernels/<key>.tmp.<random>/          being written; locked with flock() for as long as somebody does
//   <cache>/locks/<key>                          held with flock() while compiling
//   <cache>/failed/<key>/                        source, command and log of the last compilations that failed
//   <cache>/compilers/<hash>                     version strings, so that a hit need not ask the compiler; and other notes
//                                                (jit/measured_schedules.h)
//
// A cache that cannot be written costs time, never a result: after one warning a temporary directory takes its place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/jit/cache_entry.h"
#include "megalith/jit/cache_lock.h"

namespace megalith::jit {

struct CacheEntry {
  std::string key;
  std::string name;  // of the kernel
  std::string directory;
  int64_t bytes = 0;
  int64_t used_at = 0;  // seconds since 1970
};

class KernelCache {
 public:
  /// In MEGALITH_CACHE_DIR, $XDG_CACHE_HOME/megalith or ~/.cache/megalith, limited by MEGALITH_CACHE_LIMIT_MB.
  static KernelCache from_environment();
  KernelCache(std::string directory, int64_t limit_bytes);

  const std::string& directory() const { return directory_; }
  int64_t limit_bytes() const { return limit_bytes_; }

  /// Why nothing in this cache is to be believed, since others could put their code there; "" if nobody can. Then
  /// nothing is found in it, and nothing can be stored.
  std::string distrust() const;

  /// Directory of the complete entry, marked as used now; one that is damaged or not to be believed is removed and counts
  /// as none (jit/cache_entry.h).
  std::optional<std::string> find(const std::string& key) const;
  /// The same, and what was looked at: its files' contents, by name. Nobody can change or evict them any more.
  std::optional<EntryFiles> find_files(const std::string& key) const;

  /// Waits for the key's lock and removes what a dead holder left. Not held() where locking is impossible, and where the
  /// holder does not let it go: go on anyway, the work is then done twice at worst.
  CacheLock lock(const std::string& key, const LockLimits& limits = {}) const;

  /// A new, empty directory to build the entry in, for us alone. Until it is stored, discarded or kept, others see that
  /// it is in use.
  std::string workspace(const std::string& key) const;
  /// Completes the workspace with info.json and renames it into place, then evicts down to the limit. Returns the
  /// entry's directory; an older entry of that key is replaced.
  std::string store(const std::string& key, const std::string& name, const std::string& workspace) const;
  void discard(const std::string& workspace) const;
  /// Moves a workspace whose compilation failed to failed/<key>, where only the newest few are kept; returns its path.
  std::string keep_failed(const std::string& key, const std::string& workspace) const;

  /// A text that was kept under `key`; "" if there is none.
  std::string note(const std::string& key) const;
  void note_set(const std::string& key, const std::string& text) const;

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
  bool find_into(const std::string& key, EntryFiles* files) const;
  std::string path(const char* folder, const std::string& name = "") const;
  std::string aside(const std::string& key) const;
  void remove_damaged(const std::string& key) const;
  void sweep(const std::string& key) const;
  void trim_failed() const;

  std::string directory_;
  int64_t limit_bytes_ = 0;
  bool temporary_ = false;
};

}  // namespace megalith::jit
