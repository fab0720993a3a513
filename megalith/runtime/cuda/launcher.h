// Runs a program on a GPU: one launch for the whole run, a host thread that looks after it, and its end. The
// counterpart of runtime/launcher.h, with the same promises: a run without progress is a HangError with names in it,
// and a cancelled one ends soon. The kernel wakes nobody, so whoever reads its mailbox polls.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "megalith/runtime/cuda/program.h"
#include "megalith/runtime/launcher.h"

namespace megalith::runtime {

class CudaLauncher {
 public:
  /// `program` must outlive the launcher; one launcher at a time runs it. `before`: another launcher, which outlives this one, of
  /// a program of the same states: they run one behind the other.
  explicit CudaLauncher(CudaProgram& program, LaunchOptions options = {}, const CudaLauncher* before = nullptr);
  /// Cancels a run in progress and waits for it.
  ~CudaLauncher();
  CudaLauncher(const CudaLauncher&) = delete;
  CudaLauncher& operator=(const CudaLauncher&) = delete;

  RunEnd run(u32 first_iteration = 0);
  void start(u32 first_iteration = 0);
  /// Behind a run of `before`'s, or of another launcher made with it, that is in progress: this one begins without the host if
  /// that one ends because of a load in `range`, and is over at once otherwise. False if the program cannot.
  bool follow(batch::LoadRange range);
  /// Of a run that follows, when the one before it is over: it is looked after from now on.
  void attend();
  /// Of a run that is over: whether a task was done. If not, it was not its turn.
  bool has_worked() const;
  /// Until all workers have returned. HangError if the watchdog had to end the run, UserError for a fault in data
  /// (runtime/launcher.h), SystemError if the GPU ended it. What interruption_check() throws meanwhile ends the run as
  /// cancel() does.
  RunEnd wait();
  /// What is copied there before start() the kernel sees.
  jit::CudaStream stream() const { return run_stream_; }
  bool finished() const { return !running_.load(std::memory_order_acquire); }
  /// Whoever gives a kernel that waits for the host something to do says so, and its end is noticed as soon as that of another.
  void wake();
  /// From any thread, and from a signal handler: the thread that looks after the run passes it on within milliseconds.
  void cancel() noexcept { cancel_.store(true, std::memory_order_relaxed); }

 private:
  struct Watcher;

  void note_end();
  void watch();
  void wait_for_end();
  void send_abort(u32 reason);
  void fetch(const DeviceMemory& from, const PinnedMemory& to);
  struct Progress {
    u32 tasks_done = 0;      // of all workers
    bool has_begun = false;  // a kernel waits until one before it has ended, of another launcher too
  };
  Progress look();

  CudaProgram& program_;
  LaunchOptions options_;
  CudaContextGuard context_;
  CudaStreamOwner own_stream_;
  const jit::CudaStream run_stream_;
  jit::CudaStream side_stream_ = nullptr;  // copies pass the running kernel on it
  CudaEventOwner ended_;
  PinnedMemory status_, events_, abort_, word_;  // the host's copies
  std::atomic<bool> running_{false}, cancel_{false};
  std::unique_ptr<Watcher> watcher_;
  std::string hang_, failure_;  // read after the watcher was joined
};

}  // namespace megalith::runtime
