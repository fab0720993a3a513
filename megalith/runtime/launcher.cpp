#include "megalith/runtime/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "megalith/base/interruption.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/runtime/cpu/worker.h"
#include "megalith/runtime/crowding.h"
#include "megalith/runtime/fault_report.h"
#include "megalith/runtime/hang_report.h"
#include "megalith/runtime/launch_state.h"
#include "megalith/runtime/topology.h"

namespace megalith::runtime {

namespace {

using std::chrono::milliseconds;

// Looks at a counter before a waiter sleeps. With a core of its own a worker has nothing better to do, and a futex
// sleep and wake cost 5-50 us, so it spins for about twenty times that: 20,000 pauses of 10-60 ns (Zen 5, Sapphire
// Rapids) are 0.2-1.2 ms, longer than any wait inside a balanced iteration. Where workers share cores, with each other
// or with another process (runtime/crowding.h), the spinner may be what the signaller waits for, so it sleeps after
// about the time of a cache line's trip there and back.
constexpr u32 kSpinRounds = 20000;
constexpr u32 kSpinRoundsShared = 32;

/// How long a run that was told to stop may take before the watchdog gives up on its workers.
constexpr milliseconds kGrace(2000);

/// How often whoever waits for a run looks whether it shall be interrupted.
constexpr milliseconds kLook(20);

}  // namespace

/// The threads of a run, and what they wait on. They are their process's own: a fork has none of them, and no way to take
/// down what they waited on.
struct Launcher::Threads {
  const pid_t process = ::getpid();
  std::vector<WorkerThread> workers;
  std::thread watchdog;
  std::mutex mutex;              // only for the condition variable
  std::condition_variable done;  // is_over()
};

Launcher::Launcher(WorkerEntry entry, LaunchImage& image, LaunchOptions options)
    : entry_(entry), image_(image), options_(options) {
  if (options_.watchdog_ms < 0) options_.watchdog_ms = option_integer("MEGALITH_WATCHDOG_MS");
  const CpuTopology topology = cpu_topology();
  const u32 num_workers = image.launch().num_workers;
  const bool own_cores = num_workers <= static_cast<u32>(topology.num_usable());
  image.set_spin_rounds(own_cores ? kSpinRounds : kSpinRoundsShared);
  if (own_cores)
    cores_ = topology.cores;
  else
    log_info("[launch] {} workers share {} cores: not pinned, and they sleep early", num_workers,
             topology.num_usable());
  thread_ids_.resize(num_workers);
}

Launcher::~Launcher() {
  leave_threads_of_another_process();
  cancel();
  join();
}

RunEnd Launcher::run(u32 first_iteration) {
  start(first_iteration);
  return wait();
}

void Launcher::start(u32 first_iteration) {
  leave_threads_of_another_process();
  MEGALITH_ASSERT(finished(), "[launch] {} is still running", image_.name());
  join();
  const u32 num_workers = image_.launch().num_workers;
  image_.reset(first_iteration);
  const Launch& launch = image_.launch();
  const std::string trouble = why_not_ready(image_, launch.events, launch.status, *launch.control, first_iteration);
  MEGALITH_ASSERT(trouble.empty(), "[launch] {} cannot start: {}", image_.name(), trouble);
  if (options_.mailbox != nullptr) mailbox_open(options_.mailbox);

  hang_.clear();
  num_begun_.store(0, std::memory_order_relaxed);
  if (!cores_.empty()) image_.set_spin_rounds(kSpinRounds);
  has_given_up_.store(false, std::memory_order_relaxed);
  threads_ = std::make_unique<Threads>();
  num_running_.store(num_workers, std::memory_order_relaxed);  // made visible by the threads' creation
  u32 started = 0;
  try {
    for (; started < num_workers; ++started) {
      const int core = cores_.empty() ? -1 : cores_[started];
      threads_->workers.emplace_back([this, worker = started, core] {
        if (core >= 0 && !pin_this_thread(core))
          log_debug("[launch] cannot pin a worker to core {}; it runs unpinned", core);
        worker_main(worker);
      });
    }
    threads_->watchdog = std::thread([this] { watch(); });
  } catch (const std::system_error& error) {
    cancel();
    num_running_.fetch_sub(num_workers - started, std::memory_order_acq_rel);
    join();
    throw SystemError(fmt::format("[launch] cannot start thread {} of {}: {}; use fewer (MEGALITH_THREADS)",
                                  started + 1, num_workers + 1, error_text(error.code().value())));
  }
}

RunEnd Launcher::wait() {
  leave_threads_of_another_process();
  if (threads_) wait_for_threads();
  throw_fault(image_, image_.launch().status);
  // A cancel that came after the last task changes nothing: the run is complete.
  for (u32 w = 0; w < image_.launch().num_workers; ++w)
    if (image_.launch().status[w].state == static_cast<u32>(WorkerState::aborted)) return RunEnd::cancelled;
  return RunEnd::finished;
}

void Launcher::wait_for_threads() {
  std::unique_lock lock(threads_->mutex);
  while (!threads_->done.wait_for(lock, kLook, [this] { return is_over(); })) {
    if (load_relaxed(&image_.launch().control->abort) != 0) continue;  // it ends soon as it is
    lock.unlock();
    try {
      interruption_check();
    } catch (...) {
      cancel();
      lock.lock();
      threads_->done.wait(lock, [this] { return is_over(); });
      lock.unlock();
      if (finished()) join();
      throw;
    }
    lock.lock();
  }
  lock.unlock();
  // The watchdog's thread ends when the workers have, or when it has given up on them.
  if (threads_->watchdog.joinable()) threads_->watchdog.join();
  const bool is_hang = !hang_.empty();
  if (finished()) join();
  if (is_hang) throw HangError(Lines{hang_});
}

void Launcher::leave_threads_of_another_process() noexcept {
  if (!threads_ || threads_->process == ::getpid()) return;
  threads_.release();  // NOLINT: see Threads
  num_running_.store(0, std::memory_order_relaxed);
  has_given_up_.store(false, std::memory_order_relaxed);
}

void Launcher::cancel() noexcept {
  // No wake-up: a signal handler should do as little as can be, and no sleep is longer than kSleepNanoseconds.
  store_relaxed(&image_.launch().control->abort, kAbortCancel);  // W2; read by the workers' waits and before each task
}

void Launcher::share_cores(bool shared) {
  log_debug(
      "[launch] {}: workers {}", image_.name(),
      shared ? "share their cores with others: not pinned, and they sleep early" : "have their cores to themselves");
  image_.set_spin_rounds(shared ? kSpinRoundsShared : kSpinRounds);
  for (size_t w = 0; w < thread_ids_.size(); ++w)
    thread_may_use(thread_ids_[w], shared ? cores_ : std::vector<int>{cores_[w]});
}

void Launcher::worker_main(u32 worker) {
  thread_ids_[worker] = this_thread_id();
  num_begun_.fetch_add(1, std::memory_order_release);  // pairs with the acquire in watch()
  entry_(&image_.launch(), worker);
  const std::lock_guard lock(threads_->mutex);
  // release; pairs with the acquire in finished(): the caller may read the buffers then
  if (num_running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    threads_->done.notify_all();
    if (options_.mailbox != nullptr) mailbox_close(options_.mailbox);
  }
}

void Launcher::join() {
  if (!threads_) return;
  if (threads_->watchdog.joinable()) threads_->watchdog.join();
  if (!finished() && !hang_.empty())
    log_warn("[launch] {}: waiting for a worker that does not return from its task", image_.name());
  for (WorkerThread& worker : threads_->workers) worker.join();
  threads_.reset();
}

/// Counts quiet ticks instead of reading a clock, so that a stopped process (Ctrl-Z, a debugger, a suspended machine)
/// is not a hang when it goes on.
void Launcher::watch() {
  const Launch& launch = image_.launch();
  const int64_t limit_ms = options_.watchdog_ms;
  const milliseconds tick(limit_ms == 0 ? 100 : std::clamp<int64_t>(limit_ms / 10, 1, 100));
  const auto all_done = [&] { return finished(); };

  std::optional<Crowding> crowding;
  bool is_crowded = false;
  const auto look_around = [&] {
    if (cores_.empty() || num_begun_.load(std::memory_order_acquire) < launch.num_workers) return;
    if (!crowding) crowding.emplace(thread_ids_);
    const bool now = crowding->look(std::chrono::steady_clock::now().time_since_epoch().count());
    if (std::exchange(is_crowded, now) != now) share_cores(now);
  };

  u32 last_sum = 0;
  int64_t idle_ms = 0;
  std::unique_lock lock(threads_->mutex);
  while (!threads_->done.wait_for(lock, tick, all_done)) {
    look_around();
    if (limit_ms == 0) continue;
    u32 sum = 0;
    for (u32 w = 0; w < launch.num_workers; ++w) sum += load_relaxed(&launch.status[w].tasks_done);
    const bool host_is_late = options_.mailbox != nullptr && mailbox_is_waited_for(options_.mailbox);
    idle_ms = sum != last_sum || host_is_late ? 0 : idle_ms + tick.count();
    last_sum = sum;
    if (idle_ms < limit_ms) continue;

    hang_ =
        hang_report(image_, launch.status, launch.events, idle_ms);  // before the abort changes what there is to see
    store_relaxed(&launch.control->abort, kAbortWatchdog);
    if (!threads_->done.wait_for(lock, kGrace, all_done)) {
      hang_ += "\n  a worker does not return from its task; its thread ends with it, or with the process";
      has_given_up_.store(true, std::memory_order_release);
      threads_->done.notify_all();
    }
    return;
  }
}

}  // namespace megalith::runtime
