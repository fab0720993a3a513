#include "megalith/jit/patience.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/jit/stage.h"

namespace megalith::jit {

namespace {

constexpr std::chrono::milliseconds kSlice{20};

std::atomic<int> at_work = 0;  // calls that have not come back

// What exit() takes down, the library's own statics among it, is what the thread works with.
void leave_behind(std::thread& thread) {
  thread.detach();
  static std::once_flag once;
  std::call_once(once, [] {
    ::on_exit(
        [](int status, void*) {
          if (at_work == 0) return;
          std::fflush(nullptr);
          ::_exit(status);
        },
        nullptr);
  });
}

}  // namespace

double Patience::ms() const { return milliseconds_since(start_); }

bool Patience::is_over() {
  interruption_check();
  if (limits_.is_over && *limits_.is_over) return true;
  const auto spent = std::chrono::steady_clock::now() - start_;
  if (!told_ && spent >= limits_.notice) {
    told_ = true;
    log_warn(
        "{} takes long: {} so far, and it is ended after {}; Ctrl-C ends it as well, and leaves the cache as it was",
        whom_, format_seconds(ms() / 1000), format_seconds(std::chrono::duration<double>(limits_.timeout).count()));
  }
  return spent > limits_.timeout;
}

void call_patiently(const std::string& whom, std::function<void()> work, PatienceLimits limits) {
  std::packaged_task<void()> task([work = std::move(work)] {
    struct AtWork {
      AtWork() { ++at_work; }
      ~AtWork() { --at_work; }
    } const here;
    work();
  });
  std::future<void> result = task.get_future();
  std::thread thread = [&] {
    try {
      return std::thread(std::move(task));
    } catch (const std::system_error& error) {
      throw SystemError(fmt::format("[jit] cannot start a thread for {}: {}", whom, error_text(error.code().value())));
    }
  }();
  Patience patience(whom, limits);
  try {
    while (result.wait_for(kSlice) != std::future_status::ready)
      if (patience.is_over())
        throw SystemError(fmt::format("[jit] {} did not finish within {}", whom, format_seconds(patience.ms() / 1000)));
  } catch (...) {
    leave_behind(thread);
    throw;
  }
  thread.join();
  result.get();
}

}  // namespace megalith::jit
