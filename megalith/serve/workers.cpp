#include "megalith/serve/workers.h"

#include <utility>

#include "megalith/base/threads.h"

namespace megalith::serve {

Workers::Workers(int threads, size_t most_waiting, const char* name) : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; ++i) threads_.push_back(start_thread(name, [this] { run(); }));
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  wake_.notify_one();
  return true;
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    if (is_over_) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace megalith::serve
