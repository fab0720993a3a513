#include "megalith/runtime/cuda/launcher.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/threads.h"
#include "megalith/runtime/cpu/sync.h"
#include "megalith/runtime/fault_report.h"
#include "megalith/runtime/hang_report.h"

namespace megalith::runtime {

using jit::CudaDriver;
using std::chrono::milliseconds;

namespace {

constexpr unsigned kNonBlocking = 1;
/// How often the host looks whether the run is to be ended, and how often whether it has: another kernel may wait for that
/// (engine/regimes.h).
constexpr milliseconds kTick(1);
constexpr std::chrono::microseconds kPoll(25);
/// The same for a kernel that waits for the host, which does not end by itself, unless wake() says that there is something
/// to do.
constexpr milliseconds kIdleTick(4);
/// How long it looks without a pause first, if nobody reads a mailbox meanwhile: a few runs of one graph take less, and
/// whoever waits for them, or times them, should not wait for a tick.
constexpr milliseconds kBusy(20);
/// How often whoever waits for a run looks whether it shall be interrupted.
constexpr milliseconds kLook(20);
/// How often it counts the tasks done; a copy of a few KB.
constexpr int64_t kCountEveryMs = 250;
/// How long a run that was told to stop may make no progress before nobody waits for it any more: its workers run the
/// rest of their iteration.
constexpr int64_t kGraceMs = 3000;

jit::CudaStream make_stream(CudaStreamOwner& owner) {
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.stream_create(owner.out(), kNonBlocking), "making a stream");
  return owner.get();
}

// Whether the kernel waits for the host, who knows for how long: nobody need look often whether it has ended. Not for a mask.
bool is_left_alone(const Mailbox* mailbox) {
  return (load_relaxed(&mailbox->writer_sleeps) | load_relaxed(&mailbox->kernel_idles)) != 0;
}

}  // namespace

/// The thread that looks after a run, and what others wait on for its end. A forked process has neither, and cannot take
/// them down.
struct CudaLauncher::Watcher {
  std::thread thread;
  std::mutex mutex;               // only for the condition variables
  std::condition_variable ended;  // running_ became false
  std::condition_variable woken;
  bool is_woken = false;

  /// Whether it was woken before the time was over.
  bool sleep(milliseconds longest) {
    std::unique_lock lock(mutex);
    woken.wait_for(lock, longest, [this] { return is_woken; });
    return std::exchange(is_woken, false);
  }

  void join() {
    if (thread.joinable()) thread.join();
  }
};

CudaLauncher::CudaLauncher(CudaProgram& program, LaunchOptions options, const CudaLauncher* before)
    : program_(program),
      options_(options),
      context_(program.ordinal()),
      run_stream_(before != nullptr ? before->run_stream_ : make_stream(own_stream_)),
      watcher_(std::make_unique<Watcher>()) {
  if (options_.watchdog_ms < 0) options_.watchdog_ms = option_integer("MEGALITH_WATCHDOG_MS");
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.stream_create(&side_stream_, kNonBlocking), "making a stream");
  driver.check(driver.event_create(ended_.out(), jit::kCudaEventWithoutTiming), "making an event");
  status_ = PinnedMemory(program.status().bytes(), "the workers' status");
  events_ = PinnedMemory(program.events().bytes(), "the events");
  abort_ = PinnedMemory(sizeof(u32), "the abort flag");
  word_ = PinnedMemory(sizeof(u64), "a flag");
}

CudaLauncher::~CudaLauncher() {
  cancel();
  if (CudaDriver::is_of_another_process()) {
    watcher_.release();  // NOLINT: left behind
    return;
  }
  watcher_->join();
  if (gpu_is_abandoned()) return;
  CudaDriver::get().stream_destroy(side_stream_);
}

RunEnd CudaLauncher::run(u32 first_iteration) {
  start(first_iteration);
  return wait();
}

void CudaLauncher::start(u32 first_iteration) {
  MEGALITH_ASSERT(finished(), "[cuda] {} is still running", program_.image().name());
  watcher_->join();
  cancel_.store(false, std::memory_order_relaxed);
  const CudaContextGuard context(program_.ordinal());
  program_.launch(run_stream_, first_iteration);
  note_end();
  attend();
}

bool CudaLauncher::follow(batch::LoadRange range) {
  MEGALITH_ASSERT(finished(), "[cuda] {} is still running", program_.image().name());
  watcher_->join();
  cancel_.store(false, std::memory_order_relaxed);
  const CudaContextGuard context(program_.ordinal());
  if (!program_.launch_behind(run_stream_, side_stream_, range)) return false;
  note_end();
  return true;
}

bool CudaLauncher::has_worked() const {
  const auto* status = status_.data<WorkerStatus>();
  return std::any_of(status, status + program_.image().launch().num_workers,
                     [](const WorkerStatus& worker) { return worker.tasks_done > 0; });
}

void CudaLauncher::note_end() {
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.event_record(ended_.get(), run_stream_), "launching a kernel");
  running_.store(true, std::memory_order_release);
}

void CudaLauncher::attend() {
  hang_.clear();
  failure_.clear();
  if (options_.mailbox != nullptr) mailbox_open(options_.mailbox);
  try {
    watcher_->thread = start_thread("the GPU's watchdog", [this] { watch(); });
  } catch (...) {
    cancel();
    watch();  // until it has ended
    throw;
  }
}

void CudaLauncher::wake() {
  {
    const std::lock_guard lock(watcher_->mutex);
    watcher_->is_woken = true;
  }
  watcher_->woken.notify_one();
}

RunEnd CudaLauncher::wait() {
  if (CudaDriver::is_of_another_process()) return RunEnd::cancelled;
  wait_for_end();
  if (!hang_.empty()) throw HangError(Lines{hang_});
  if (!failure_.empty()) throw SystemError(failure_);
  const auto* status = status_.data<WorkerStatus>();
  // A run that was told to stop ends on whatever is there: what is wrong with that says nothing.
  if (!cancel_.load(std::memory_order_relaxed)) throw_fault(program_.image(), status);
  for (u32 w = 0; w < program_.image().launch().num_workers; ++w)
    if (status[w].state == static_cast<u32>(WorkerState::aborted)) return RunEnd::cancelled;
  return RunEnd::finished;
}

void CudaLauncher::wait_for_end() {
  std::unique_lock lock(watcher_->mutex);
  while (!watcher_->ended.wait_for(lock, kLook, [this] { return finished(); })) {
    if (cancel_.load(std::memory_order_relaxed)) continue;  // it ends soon as it is
    lock.unlock();
    try {
      interruption_check();
    } catch (...) {
      cancel();
      watcher_->join();
      throw;
    }
    lock.lock();
  }
  lock.unlock();
  watcher_->join();
}

void CudaLauncher::send_abort(u32 reason) {
  const CudaDriver& driver = CudaDriver::get();
  *abort_.data<u32>() = reason;
  driver.check(driver.copy_to_device_async(program_.control().address(), abort_.data(), sizeof(u32), side_stream_),
               "telling the kernel to stop");
}

void CudaLauncher::fetch(const DeviceMemory& from, const PinnedMemory& to) {
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.copy_to_host_async(to.data(), from.address(), static_cast<size_t>(from.bytes()), side_stream_),
               "asking the workers what they do");
  driver.check(driver.stream_synchronize(side_stream_), "asking the workers what they do");
}

CudaLauncher::Progress CudaLauncher::look() {
  fetch(program_.status(), status_);
  fetch(program_.events(), events_);
  Progress progress;
  const auto* status = status_.data<WorkerStatus>();
  for (u32 w = 0; w < program_.image().launch().num_workers; ++w) {
    progress.tasks_done += status[w].tasks_done;
    progress.has_begun |= status[w].state != static_cast<u32>(WorkerState::starting);
  }
  return progress;
}

/// Counts quiet ticks instead of reading a clock, as runtime/launcher.cpp does and for the same reason.
void CudaLauncher::watch() {
  const CudaDriver& driver = CudaDriver::get();
  const LaunchImage& image = program_.image();
  const auto* status = status_.data<WorkerStatus>();
  try {
    const CudaContextGuard context(program_.ordinal());
    if (options_.mailbox == nullptr) {
      const auto end = std::chrono::steady_clock::now() + kBusy;
      while (!cancel_.load(std::memory_order_relaxed) && driver.event_query(ended_.get()) == jit::kCudaNotReady &&
             std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
    }
    Progress progress;
    int64_t idle_ms = 0, since_count_ms = 0;
    bool is_aborted = false, has_told = false, is_woken = false;
    const auto abort = [&](u32 reason) {
      send_abort(reason);
      is_aborted = true;
      idle_ms = 0;
    };
    for (;;) {
      const jit::CudaCode code = driver.event_query(ended_.get());
      if (code == 0) break;
      if (code != jit::kCudaNotReady) driver.check(code, fmt::format("running \"{}\"", image.name()));
      // What it is to do now the kernel has yet to see.
      const bool is_idle = !is_woken && options_.mailbox != nullptr && is_left_alone(options_.mailbox);
      is_woken = is_idle && watcher_->sleep(kIdleTick);
      const milliseconds tick = is_idle && !is_woken ? kIdleTick : kTick;
      const auto end = std::chrono::steady_clock::now() + kTick;
      while (!is_idle) {
        sleep_exactly(kPoll);
        if (driver.event_query(ended_.get()) != jit::kCudaNotReady || std::chrono::steady_clock::now() >= end) break;
      }
      if (!is_aborted && cancel_.load(std::memory_order_relaxed)) abort(kAbortCancel);
      since_count_ms += tick.count();
      const int64_t patience_ms = is_aborted ? kGraceMs : options_.watchdog_ms;
      if (patience_ms == 0 || since_count_ms < std::min(kCountEveryMs, patience_ms)) continue;
      const Progress before = std::exchange(progress, look());
      const bool host_is_late = !is_aborted && options_.mailbox != nullptr && mailbox_is_waited_for(options_.mailbox);
      idle_ms = progress.tasks_done != before.tasks_done || host_is_late ? 0 : idle_ms + since_count_ms;
      since_count_ms = 0;
      if (idle_ms < patience_ms) continue;
      if (!progress.has_begun) {  // no fault of its own
        if (!has_told) log_info("{} waits for the GPU, which something else runs on", image.name());
        has_told = true;
        continue;
      }
      if (!is_aborted) {
        const auto load_word = [&](const void* address) {
          auto* const word = word_.data<u64>();
          driver.check(
              driver.copy_to_host_async(word, reinterpret_cast<jit::CudaAddress>(address), sizeof(u64), side_stream_),
              "asking for a flag");
          driver.check(driver.stream_synchronize(side_stream_), "asking for a flag");
          return *word;
        };
        hang_ = hang_report(image, status, events_.data<EventCounter>(), idle_ms, load_word);
        abort(kAbortWatchdog);
        continue;
      }
      failure_ = fmt::format(
          "[cuda] {} does not stop: a worker does not return from its task. The GPU is not to be had for anything else "
          "before this process ends: end it",
          image.name());
      if (!hang_.empty()) hang_ += "\n  " + failure_;
      abandon_gpu(failure_);
      break;
    }
    if (failure_.empty()) fetch(program_.status(), status_);
  } catch (const std::exception& error) { failure_ = error.what(); }
  {
    const std::lock_guard lock(watcher_->mutex);
    running_.store(false, std::memory_order_release);
    watcher_->ended.notify_all();
  }
  if (options_.mailbox != nullptr) mailbox_close(options_.mailbox);
}

}  // namespace megalith::runtime
