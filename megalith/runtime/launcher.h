// The launcher: starts one thread per worker on a launch image, watches that they get on, and ends them. All threads
// that run tasks are made here. A run that stops making progress is an error with names in it, never a process that
// hangs.
//
//   LaunchImage image(graph, parts);
//   Launcher launcher(entry, image);
//   launcher.run();                       // or start(), mailbox_take() until finished(), wait()
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/runtime/image.h"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

/// A run made no progress; the message says what each worker waits for or runs. The task graph, or a body, is wrong.
class HangError : public InternalError {
 public:
  using InternalError::InternalError;
};

enum class RunEnd { finished, cancelled };

struct LaunchOptions {
  int64_t watchdog_ms = -1;    // time without progress that counts as a hang; -1: MEGALITH_WATCHDOG_MS, 0: never
  Mailbox* mailbox = nullptr;  // of the kernel: while it is full the kernel waits for the host, which is not a hang
};

class Launcher {
 public:
  /// `image` must outlive the launcher; one launcher at a time runs it.
  Launcher(WorkerEntry entry, LaunchImage& image, LaunchOptions options = {});
  /// Cancels a run in progress and waits for its threads.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// start() and wait().
  RunEnd run(u32 first_iteration = 0);
  /// Resets the image's counters and starts the workers. SystemError if a thread cannot be made.
  void start(u32 first_iteration = 0);
  /// Until all workers have returned. HangError if the watchdog had to end the run.
  RunEnd wait();
  /// True once all workers have returned (or none was started): wait() will not block.
  bool finished() const { return num_running_.load(std::memory_order_acquire) == 0; }
  /// Ends the run in progress within 100 ms plus what the longest task takes. From any thread, and from a signal
  /// handler.
  void cancel() noexcept;

 private:
  void worker_main(u32 worker);
  void watch();
  void join();
  /// Workers move between cores and sleep early, or are pinned and spin.
  void share_cores(bool shared);

  WorkerEntry entry_;
  LaunchImage& image_;
  LaunchOptions options_;
  std::vector<int> cores_;  // one per worker to pin it to; empty if there are fewer
  std::vector<int64_t> thread_ids_;  // per worker; written by it, read by the watchdog once all have begun
  std::atomic<u32> num_begun_{0};
  std::vector<std::thread> workers_;
  std::thread watchdog_;
  std::atomic<u32> num_running_{0};
  std::mutex mutex_;              // only for the condition variable
  std::condition_variable done_;  // num_running_ reached 0
  std::string hang_;              // the watchdog's report; read after it was joined
};

}  // namespace megalith::runtime
