// The GPU worker: what each block of a persistent kernel runs. The steps P0-P5 and the words W1-W4 are those of
// runtime/protocol.h. Thread 0 speaks the protocol for its block, barriers pass on to the others what it saw:
//   P2  thread 0 loads with acquire, then a barrier: what the signallers wrote is visible to all threads of the block.
//   P5  a barrier, then thread 0 adds with release: what any thread of the block wrote is visible to whoever waits.
// Nobody sleeps; `sleepers` stays zero. Status and abort word lie in device memory and the host copies them
// (runtime/cuda/launcher.h), so the path between two tasks never waits for the host's link. A wait looks at the abort
// word every round; between tasks it is looked at once an iteration, which is soon enough: iterations take
// milliseconds.
#pragma once

#include "megalith/runtime/cuda/sync.cuh"

namespace megalith::runtime {

/// Whether `needed` arrivals are in. Acquire; pairs with P5.
inline bool event_has(const EventCounter& event, u32 needed) {
  return static_cast<i32>(word_arrived(load_acquire(&event.word)) - needed) >= 0;
}

/// No wait of a sound run is longer; a host that died, or a wrong graph, must not hold the GPU for ever.
constexpr u64 kLongestWaitNanoseconds = 60'000'000'000;

/// P2, by thread 0: true once `needed` arrivals are in, false if the run is aborted. What it waits for is written down
/// only after a while, for whoever asks why nothing moves.
inline bool event_wait(const Launch& launch, WorkerStatus& status, u32 event, u32 needed) {
  constexpr u32 kRoundsBeforePause = 16, kRoundsBeforeReport = 1 << 12;
  u64 begin = 0;
  for (u32 round = 0; !event_has(launch.events[event], needed); ++round) {
    if (round > kRoundsBeforePause) spin_pause();
    if (round == kRoundsBeforeReport) {
      store_relaxed(&status.event, event);
      store_relaxed(&status.wanted, needed);
      store_relaxed(&status.state, static_cast<u32>(WorkerState::waiting));
      begin = monotonic_ns();
    }
    if ((round & 15) != 15) continue;
    if (load_relaxed(&launch.control->abort) != 0) return false;
    if (begin != 0 && monotonic_ns() - begin > kLongestWaitNanoseconds) return false;
  }
  return true;
}

/// Runs one worker's list until num_iterations are done, W4 stops the loop, or W2 aborts the run. All threads of the
/// block call it. `run_task(task, operands, scratch, iteration)` is the switch over the task bodies.
template <class RunTask>
inline void worker_run(const Launch& launch, u32 worker, u8* scratch, RunTask run_task) {
  WorkerStatus& status = launch.status[worker];
  const u32* const first = launch.list + launch.list_begin[worker];
  const u32* const last = launch.list + launch.list_begin[worker + 1];
  const bool speaks = threadIdx.x == 0;
  u32 tasks_done = 0;
  auto end = [&](WorkerState state) {
    if (speaks) store_relaxed(&status.state, static_cast<u32>(state));
  };

  if (first == last) return end(WorkerState::finished);
  for (u32 done = 0; launch.num_iterations == 0 || done < launch.num_iterations; ++done) {
    const u32 iteration = launch.first_iteration + done;

    // P0 gate
    bool go = true;
    if (speaks) {
      store_relaxed(&status.iteration, iteration);
      store_relaxed(&status.task, kNone);
      go = load_relaxed(&launch.control->abort) == 0 &&
           (launch.gate == kNone || event_wait(launch, status, launch.gate, launch.gate_arrivals * iteration));
    }
    if (!__syncthreads_and(go)) return end(WorkerState::aborted);
    if (launch.stop != nullptr && *static_cast<const volatile i32*>(launch.stop) != 0) break;

    for (const u32* next = first; next != last; ++next) {
      // P1 fetch
      const TaskRecord& task = launch.tasks[*next];

      // P2 wait
      go = true;
      if (speaks) {
        store_relaxed(&status.task, *next);
        for (u32 w = 0; go && w < task.num_waits; ++w) {
          const WaitRecord& wait = launch.waits[task.first_wait + w];
          go = event_wait(launch, status, wait.event, wait.arrivals * (iteration - wait.lag) + wait.count);
        }
        if (go) store_relaxed(&status.state, static_cast<u32>(WorkerState::running));
      }
      if (!__syncthreads_and(go)) return end(WorkerState::aborted);

      // P3 run
      run_task(task, launch.operands + task.first_operand, scratch, iteration);

      // P5 signal
      __syncthreads();
      if (speaks) {
        for (u32 s = 0; s < task.num_signals; ++s)
          add_release(&launch.events[launch.signals[task.first_signal + s]].word, kOneArrival);
        store_relaxed(&status.tasks_done, ++tasks_done);
      }
    }
  }
  end(WorkerState::finished);
}

}  // namespace megalith::runtime
