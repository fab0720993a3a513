#include "megalith/base/threads.h"

#include <atomic>
#include <system_error>

#include "megalith/base/error.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"

namespace megalith {

std::vector<std::jthread> start_helpers(int count, const std::function<void()>& work) {
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(work);
  } catch (const std::system_error& error) {
    log_warn("{} of {} threads could be started ({}); it goes on with fewer", threads.size(), count,
             error_text(error.code().value()));
  }
  return threads;
}

std::thread start_thread(const std::string& what, std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw SystemError(fmt::format("cannot start the thread of {}: {}", what, error_text(error.code().value())));
  }
}

void run_together(const std::string& what, int count, const std::function<void(int)>& work) {
  enum Gate { kClosed, kOpen, kGivenUp };
  std::atomic<int> gate = kClosed;
  std::vector<std::thread> threads;
  auto finish = [&](Gate how) {
    gate = how;
    gate.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (int t = 0; t < count; ++t)
      threads.push_back(start_thread(fmt::format("{}, {} of {}", what, t + 1, count), [&gate, &work, t] {
        gate.wait(kClosed);
        if (gate == kOpen) work(t);
      }));
  } catch (...) {
    finish(kGivenUp);
    throw;
  }
  finish(kOpen);
}

}  // namespace megalith
