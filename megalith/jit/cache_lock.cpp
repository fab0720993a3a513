#include "megalith/jit/cache_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/interruption.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"

namespace megalith::jit {

namespace {

// What another process undoes at once is tried again, but not for ever: it may be the file system that refuses.
constexpr int kMaxLockAttempts = 10000;

// The holder's number, which it writes into the file; nothing if it has not yet.
std::optional<pid_t> holder_of(int fd) {
  char text[16] = {};
  if (::pread(fd, text, sizeof text - 1, 0) <= 0) return std::nullopt;
  const int pid = std::atoi(text);
  return pid > 0 ? std::optional<pid_t>(pid) : std::nullopt;
}

bool is_stopped(pid_t pid) {
  try {
    // "4711 (name) T ...": the name may hold anything.
    const std::string status = stream_read(fmt::format("/proc/{}/stat", pid), 4096);
    const size_t end = status.rfind(") ");
    return end != std::string::npos && end + 2 < status.size() && (status[end + 2] == 'T' || status[end + 2] == 't');
  } catch (const SystemError&) { return false; }
}

// As flock() says it; with EWOULDBLOCK when it took too long.
int wait_for_lock(int fd, const std::string& file, const LockLimits& limits) {
  constexpr auto kLook = std::chrono::milliseconds(10);
  constexpr auto kLookAtHolder = std::chrono::milliseconds(500);
  const auto begin = std::chrono::steady_clock::now();
  auto next_look = begin, stopped_since = begin;
  for (bool told = false;;) {
    if (!::flock(fd, LOCK_EX | LOCK_NB)) return 0;
    if (errno != EWOULDBLOCK && errno != EINTR) return -1;
    interruption_check();
    const auto now = std::chrono::steady_clock::now();
    auto who = [&] {
      const std::optional<pid_t> holder = holder_of(fd);
      return holder ? fmt::format("process {}", *holder) : std::string("another process");
    };
    if (!told && now - begin > limits.notice) {
      log_warn("waiting for {}, which compiles the same kernel and holds {}", who(), file);
      told = true;
    }
    if (now >= next_look) {
      next_look = now + kLookAtHolder;
      const std::optional<pid_t> holder = holder_of(fd);
      if (!holder || !is_stopped(*holder)) stopped_since = now;
    }
    const bool is_late = now - begin > limits.timeout;
    if (is_late || now - stopped_since > limits.stopped) {
      log_warn(
          "{} holds {} {}: the kernel is compiled here as well", who(), file,
          is_late ? "for " + format_seconds(std::chrono::duration<double>(now - begin).count()) : "and is stopped");
      errno = EWOULDBLOCK;
      return -1;
    }
    std::this_thread::sleep_for(kLook);
  }
}

// `limits` is nullptr: without waiting.
CacheLock take(const std::string& file, const LockLimits* limits) {
  for (int attempt = 0; attempt < kMaxLockAttempts; ++attempt) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) return {};
    int failed = 0;
    try {
      failed = limits ? wait_for_lock(fd, file, *limits) : ::flock(fd, LOCK_EX | LOCK_NB);
    } catch (...) {
      ::close(fd);
      throw;
    }
    // Whoever let it go has deleted it: then there is another one by now, or none.
    struct stat held, there;
    if (!failed && ::fstat(fd, &held) == 0 && S_ISREG(held.st_mode) && ::lstat(file.c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
      const std::string pid = fmt::format("{}\n", ::getpid());
      // For those who wait; without it they know less.
      if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, pid.data(), pid.size(), 0) < 0) log_debug("cannot write {}", file);
      return CacheLock(file, fd);
    }
    ::close(fd);
    if (failed) return {};
  }
  return {};
}

}  // namespace

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

CacheLock lock_wait(const std::string& file, const LockLimits& limits) { return take(file, &limits); }
CacheLock lock_try(const std::string& file) { return take(file, nullptr); }

int directory_lock(const std::string& directory, bool* is_unknown) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (is_unknown) *is_unknown = errno != EWOULDBLOCK;
  ::close(fd);
  return -1;
}

}  // namespace megalith::jit
