#include "megalith/base/threads.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"

namespace megalith {

namespace {

constexpr std::chrono::milliseconds kLook{20};

// The indices that are still to be worked on, and the first exception.
class Indices {
 public:
  Indices(size_t count, const std::function<void(size_t, const std::atomic<bool>&)>& work)
      : count_(count), work_(work) {}

  bool work_on_one() {
    const size_t i = is_over_ ? count_ : next_++;
    if (i >= count_) return false;
    try {
      work_(i, is_over_);
    } catch (...) { fail(); }
    return true;
  }
  // Keeps the exception that is being handled.
  void fail() {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    is_over_ = true;
  }
  void look() {
    if (is_over_) return;
    try {
      interruption_check();
    } catch (...) { fail(); }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const size_t count_;
  const std::function<void(size_t, const std::atomic<bool>&)>& work_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

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

void sleep_exactly(std::chrono::microseconds time) {
#if defined(__linux__)
  const int slack = ::prctl(PR_GET_TIMERSLACK);
  ::prctl(PR_SET_TIMERSLACK, 1);
  std::this_thread::sleep_for(time);
  ::prctl(PR_SET_TIMERSLACK, slack);
#else
  std::this_thread::sleep_for(time);
#endif
}

void for_each_index(size_t count, int num_threads,
                    const std::function<void(size_t i, const std::atomic<bool>& is_over)>& work) {
  using Clock = std::chrono::steady_clock;
  Indices indices(count, work);
  std::mutex mutex;
  std::condition_variable ended;
  size_t num_ended = 0;  // helpers; guarded by `mutex`
  {
    const int num_helpers =
        static_cast<int>(std::min<size_t>(count, static_cast<size_t>(std::max(num_threads, 1)))) - 1;
    const std::vector<std::jthread> helpers = start_helpers(num_helpers, [&] {
      while (indices.work_on_one()) {}
      const std::lock_guard lock(mutex);
      ++num_ended;
      ended.notify_one();
    });
    for (Clock::time_point last = Clock::now(); indices.work_on_one();) {
      if (Clock::now() - last < kLook) continue;
      indices.look();
      last = Clock::now();
    }
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kLook, [&] { return num_ended == helpers.size(); })) {
      lock.unlock();
      indices.look();
      lock.lock();
    }
  }
  indices.rethrow();
}

}  // namespace megalith
