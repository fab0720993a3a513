#include "tools/interrupt.h"

#include <pthread.h>

#include <csignal>
#include <ctime>
#include <utility>

#include "megalith/base/threads.h"

namespace megalith::tools {

namespace {

sigset_t interrupt_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

// The signal's own way to end a process, which tells the shell that it was Ctrl-C.
[[noreturn]] void die_of_interrupt() {
  std::signal(SIGINT, SIG_DFL);
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  std::raise(SIGINT);
  std::_Exit(130);
}

}  // namespace

InterruptGuard::InterruptGuard(std::function<void()> stop) : stop_(std::move(stop)) {
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  try {
    thread_ = start_thread("Ctrl-C", [this] { watch(); });
  } catch (...) {
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    throw;
  }
}

InterruptGuard::~InterruptGuard() {
  over_ = true;
  thread_.join();
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void InterruptGuard::watch() {
  const sigset_t set = interrupt_set();
  const timespec tick = {0, 10'000'000};
  while (!over_) {
    if (sigtimedwait(&set, nullptr, &tick) == SIGINT) {
      if (interrupted_) die_of_interrupt();
      interrupted_ = true;
    }
    if (interrupted_) stop_();
  }
}

}  // namespace megalith::tools
