// The CPU worker: what each pinned thread of a persistent kernel runs. The steps P0-P5 and the words W1-W4 are those of
// runtime/protocol.h. Freestanding: a generated kernel includes this, writes its `switch`, and exports
//   extern "C" void megalith_worker(const Launch* launch, u32 worker) {
//     worker_run(*launch, worker, [](const TaskRecord& task, void* const* operands, u8* scratch, u32 iteration) {...});
//   }
#pragma once

#include "megalith/runtime/cpu/sync.h"
#include "megalith/runtime/profile.h"

namespace megalith::runtime {

/// Longest sleep of a waiter. It bounds how late an abort is seen (a cancel must end a run within 100 ms) and costs an
/// idle worker 50 wake-ups a second, about 0.03 % of a core.
constexpr u64 kSleepNanoseconds = 20'000'000;

/// Where the futex of an event lies: `arrived`, which is what changes when a sleeper should wake.
inline u32* event_futex(EventCounter* event) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrived is the word's second half");
  return reinterpret_cast<u32*>(&event->word) + 1;
}

/// P5. Release; pairs with the acquire load in event_wait(). The old value says whether anybody sleeps.
inline void add_release_wake(EventCounter* event) {
  const u64 old = add_release(&event->word, kOneArrival);
  if (word_sleepers(old) != 0) word_wake(event_futex(event));
}

/// Sleeps once, unless what is needed is there. Relaxed: the caller looks again with acquire, and the word's
/// modification order alone decides between this add and the one in add_release_wake().
inline void event_sleep(EventCounter* event, u32 needed) {
  const u32 arrived = word_arrived(add_relaxed(&event->word, 1));
  if (static_cast<i32>(arrived - needed) < 0) word_sleep(event_futex(event), arrived, kSleepNanoseconds);
  add_relaxed(&event->word, static_cast<u64>(-1));
}

/// Whether `needed` arrivals are in. Acquire; pairs with add_release_wake().
inline bool event_has(const EventCounter& event, u32 needed) {
  return static_cast<i32>(word_arrived(load_acquire(&event.word)) - needed) >= 0;
}

/// The slow half of P2: says what it waits for, spins, then sleeps. False: the run is aborted.
[[gnu::noinline]] inline bool event_wait_slow(const Launch& launch, WorkerStatus& status, u32 event, u32 needed) {
  store_relaxed(&status.event, event);
  store_relaxed(&status.wanted, needed);
  store_relaxed(&status.state, static_cast<u32>(WorkerState::waiting));
  for (u32 round = 0; !event_has(launch.events[event], needed); ++round) {
    if (load_relaxed(&launch.control->abort) != 0) return false;
    if (round < load_relaxed(&launch.spin_rounds))
      spin_pause();
    else
      event_sleep(&launch.events[event], needed);
  }
  store_relaxed(&status.state, static_cast<u32>(WorkerState::running));
  return true;
}

/// P2: true once `needed` arrivals are in, false if the run is aborted.
inline bool event_wait(const Launch& launch, WorkerStatus& status, u32 event, u32 needed) {
  return event_has(launch.events[event], needed) || event_wait_slow(launch, status, event, needed);
}

/// Runs one worker's list until num_iterations are done, W4 stops the loop, or W2 aborts the run; the state it returns
/// in is in its status. `run_task(task, operands, scratch, iteration)` is the switch over the task bodies; it must not
/// throw. What a body finds wrong with its data it notes in that status, too.
template <class RunTask>
void worker_run(const Launch& launch, u32 worker, RunTask&& run_task) {
  WorkerStatus& status = launch.status[worker];
  const u32* const first = launch.list + launch.list_begin[worker];
  const u32* const last = launch.list + launch.list_begin[worker + 1];
  u8* const scratch = launch.scratch + worker * launch.scratch_bytes;
  u32 tasks_done = 0;
  const bool profiled = launch.profile != nullptr;
  u64 begin_ns = 0, ready_ns = 0;  // of the task in hand, if profiled
  auto end = [&](WorkerState state) { store_relaxed(&status.state, static_cast<u32>(state)); };

  if (first == last) return end(WorkerState::finished);
  for (u32 done = 0; launch.num_iterations == 0 || done < launch.num_iterations; ++done) {
    const u32 iteration = launch.first_iteration + done;
    store_relaxed(&status.iteration, iteration);
    store_relaxed(&status.task, kNone);

    // P0 gate
    if (launch.gate != kNone && !event_wait(launch, status, launch.gate, launch.gate_arrivals * iteration))
      return end(WorkerState::aborted);
    if (launch.stop != nullptr && *launch.stop != 0) break;
    if (profiled) begin_ns = profile_clock();

    for (const u32* next = first; next != last; ++next) {
      // P1 fetch
      const TaskRecord& task = launch.tasks[*next];
      store_relaxed(&status.task, *next);
      store_relaxed(&status.state, static_cast<u32>(WorkerState::running));

      // P2 wait
      for (u32 w = 0; w < task.num_waits; ++w) {
        const WaitRecord& wait = launch.waits[task.first_wait + w];
        if (!event_wait(launch, status, wait.event, wait.arrivals * (iteration - wait.lag) + wait.count))
          return end(WorkerState::aborted);
      }
      if (profiled) ready_ns = task.num_waits == 0 ? begin_ns : profile_clock();

      // P3 run
      if (load_relaxed(&launch.control->abort) != 0) return end(WorkerState::aborted);
      run_task(task, launch.operands + task.first_operand, scratch, iteration);
      if (status.fault.found != 0) [[unlikely]] {
        status.fault.task = *next;
        store_relaxed(&launch.control->abort, static_cast<u32>(kAbortFault));
        return end(WorkerState::aborted);
      }

      // P5 signal
      for (u32 s = 0; s < task.num_signals; ++s)
        add_release_wake(&launch.events[launch.signals[task.first_signal + s]]);
      if (profiled) {
        const u64 end_ns = profile_clock();
        *profile_record(launch, worker, tasks_done) = {*next, iteration, begin_ns, ready_ns, end_ns};
        begin_ns = end_ns;
      }
      store_relaxed(&status.tasks_done, ++tasks_done);
    }
  }
  end(WorkerState::finished);
}

}  // namespace megalith::runtime
