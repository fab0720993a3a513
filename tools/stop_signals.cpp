#include "tools/stop_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <cstdint>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "megalith/base/error.h"

namespace megalith::tools {

namespace {

// A handler and a pipe, and not sigwait(): threads that exist already, of the engine's too, have the signals unblocked.
std::atomic<int> write_end = -1;

void handle(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  if (::write(write_end, &byte, 1) < 0) {}  // full: enough of them are waited for
  errno = saved;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  if (::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) throw system_error("cannot make a pipe");
  write_end = pipe_[1];
  set_handler(handle);
}

StopSignals::~StopSignals() {
  set_handler(SIG_DFL);
  write_end = -1;
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

int StopSignals::wait(std::chrono::milliseconds patience) {
  pollfd wanted = {pipe_[0], POLLIN, 0};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    unsigned char byte = 0;
    if (ready > 0 && ::read(pipe_[0], &byte, 1) == 1) return byte;
    if (ready == 0) return 0;
  }
}

int StopSignals::wait() {
  while (true)
    if (const int signal = wait(std::chrono::hours(1))) return signal;
}

void StopSignals::die_of(int signal) {
  set_handler(SIG_DFL);
  ::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace megalith::tools
