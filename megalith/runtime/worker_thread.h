// The thread that a worker is. Its stack has a size of its own, whatever `ulimit -s` says: what tasks work in lies in
// scratch (kernels/cpu/workspace.h), and frames are no larger than the compiler is told to allow
// (codegen::kMaxFrameBytes).
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace megalith::runtime {

/// A few frames of the largest kind, and room for what a sanitizer adds. Of a page that nobody touches there is none.
inline constexpr size_t kWorkerStackBytes = size_t{2} << 20;

/// Runs a function; join() before it goes. Move-only.
class WorkerThread {
 public:
  /// std::system_error if there is no thread to be had. `main` must not throw.
  explicit WorkerThread(std::function<void()> main);
  WorkerThread(WorkerThread&& other) noexcept : thread_(other.thread_), runs_(std::exchange(other.runs_, false)) {}
  WorkerThread& operator=(WorkerThread&&) = delete;
  ~WorkerThread() { join(); }

  void join();

 private:
  pthread_t thread_{};
  bool runs_ = false;
};

}  // namespace megalith::runtime
