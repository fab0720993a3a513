#include "megalith/runtime/crowding.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

namespace megalith::runtime {

int64_t this_thread_id() { return ::syscall(SYS_gettid); }

int64_t run_delay_ns(int64_t thread_id) {
  char path[64], text[128];
  std::snprintf(path, sizeof path, "/proc/self/task/%lld/schedstat", static_cast<long long>(thread_id));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t bytes = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (bytes <= 0) return -1;
  text[bytes] = 0;
  long long ran = 0, waited = 0;
  return std::sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : -1;
}

bool Crowding::look(int64_t now_ns) {
  // Interrupts and the host's own threads take a core for a few microseconds now and then; a neighbour takes it for
  // milliseconds at a time.
  constexpr int64_t kShare = 20, kCalmNs = 1'000'000'000;
  const int64_t passed = last_ns_ < 0 ? 0 : now_ns - last_ns_;
  last_ns_ = now_ns;
  for (Thread& thread : threads_) {
    const int64_t delay = run_delay_ns(thread.id), waited = thread.delay_ns < 0 ? 0 : delay - thread.delay_ns;
    thread.delay_ns = delay;
    if (passed > 0 && waited * kShare > passed) crowded_ns_ = now_ns;
  }
  return crowded_ns_ >= 0 && now_ns - crowded_ns_ < kCalmNs;
}

}  // namespace megalith::runtime
