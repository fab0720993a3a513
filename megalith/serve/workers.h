// A few threads for what takes too long for the server's own: reading large bodies, templates, tokenisation; and others for grammars.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace megalith::serve {

class Workers {
 public:
  /// `name`: of a thread, for the system's lists.
  Workers(int threads, size_t most_waiting, const char* name);
  /// Waits for what is being done; what has not begun is dropped.
  ~Workers();
  Workers(const Workers&) = delete;

  /// False if too much waits already. `work` must not throw. From any thread.
  bool post(std::function<void()> work);

 private:
  void run();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace megalith::serve
