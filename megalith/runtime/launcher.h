// The launcher: starts one thread per worker on a launch image, watches that they get on, and ends them. All threads
// that run tasks are made here. A run that stops making progress is an error with names in it, never a process that
// hangs.
//
//   LaunchImage image(graph, parts);
//   Launcher launcher(entry, image);
//   launcher.run();                       // or start(), mailbox_take() until finished(), wait()
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/runtime/image.h"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/protocol.h"
#include "megalith/runtime/worker_thread.h"

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
  /// Cancels a run in progress and waits for its threads; in a process forked meanwhile there are none to wait for.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// start() and wait().
  RunEnd run(u32 first_iteration = 0);
  /// Resets the image's counters and starts the workers. SystemError if a thread cannot be made.
  void start(u32 first_iteration = 0);
  /// Until all workers have returned. HangError if the watchdog had to end the run, UserError if a body found a fault in
  /// its data: a subscript outside its tensor, a division by zero. What interruption_check() throws meanwhile ends the run
  /// as cancel() does, and comes out when the workers have returned. Another run may be started then.
  RunEnd wait();
  /// True once all workers have returned (or none was started).
  bool finished() const { return num_running_.load(std::memory_order_acquire) == 0; }
  /// The same, or the watchdog has given up on one: wait() will not block.
  bool is_over() const { return finished() || has_given_up_.load(std::memory_order_acquire); }
  /// Ends the run in progress within 100 ms plus what the longest task takes. From any thread, and from a signal
  /// handler.
  void cancel() noexcept;

 private:
  struct Threads;

  void worker_main(u32 worker);
  void watch();
  void wait_for_threads();
  void join();
  /// Workers move between cores and sleep early, or are pinned and spin.
  void share_cores(bool shared);
  void leave_threads_of_another_process() noexcept;

  WorkerEntry entry_;
  LaunchImage& image_;
  LaunchOptions options_;
  std::vector<int> cores_;           // one per worker to pin it to; empty if there are fewer
  std::vector<int64_t> thread_ids_;  // per worker; written by it, read by the watchdog once all have begun
  std::atomic<u32> num_begun_{0};
  std::atomic<u32> num_running_{0};
  std::atomic<bool> has_given_up_{false};
  std::unique_ptr<Threads> threads_;
  std::string hang_;  // the watchdog's report; read after it was joined
};

}  // namespace megalith::runtime
