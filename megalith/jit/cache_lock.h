// Locks of the kernel cache, by flock(): the system releases them when their holder dies, however it dies.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace megalith::jit {

/// How long to wait for a lock that another process holds. Most kernels compile in less than a minute; whoever holds one
/// for longer may never let it go.
struct LockLimits {
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// If the holder is seen to be stopped (Ctrl-Z, a debugger).
  std::chrono::milliseconds stopped = std::chrono::seconds(10);
  /// From then on the user is told why nothing happens.
  std::chrono::milliseconds notice = std::chrono::seconds(2);
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

/// Takes the lock `file`, which is made for it and goes with it. Not held() where locking is impossible, and where
/// another process holds it for longer than the limits say, of which there is a warning.
CacheLock lock_wait(const std::string& file, const LockLimits& limits);
/// The same without waiting.
CacheLock lock_try(const std::string& file);

/// Locks a directory of which others must know that it is in use, until the descriptor is closed; -1: it is locked
/// already, or is none. `*is_unknown`: this file system has no such locks.
int directory_lock(const std::string& directory, bool* is_unknown = nullptr);

}  // namespace megalith::jit
