// What a worker writes down of each task when it is profiled: which, and when. A ring per worker, in memory that the
// host gives it (Launch::profile); the newest records stay. Freestanding: every worker and the host share this header.
//
// Who writes what: a record belongs to its worker until the run is over; then the host reads it. The n-th task that a
// worker finished, counted from 0 by its W3 `tasks_done`, has the record n modulo the capacity, so no counter is needed
// beside the one that the watchdog has.
//
// The times follow each other without a gap: a task begins where the one before it ended, or, the first of an
// iteration, when its worker passed the gate. What lies between an iteration's last end and the next one's first begin
// is the gate.
#pragma once

#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

/// Times are by the worker's own clock (profile_clock() of its sync header), whose unit is that clock's while the
/// kernel runs; profile_take() makes them nanoseconds.
struct ProfileRecord {
  u32 task;
  u32 iteration;
  u64 begin_ns;  // its turn came: P1
  u64 ready_ns;  // its waits hold: after P2
  u64 end_ns;    // its body has run and its events are signalled: after P5
  // Of those times, for how long the worker's stream of weights asked memory for nothing, having no room; where there
  // are streams.
  u32 idle_waiting_ns = 0, idle_busy_ns = 0;
};

/// Where clocks are a worker's own, it looks at its own and at the one that all share after every so many tasks, and at
/// the end. So many of these pairs are kept of a worker.
constexpr u32 kTasksOfClock = 16;
constexpr u32 profile_clock_capacity(u32 capacity) {
  return capacity < 2 * kTasksOfClock ? 4 : capacity / (kTasksOfClock / 2);
}
/// How many there are besides the last one, after so many tasks.
constexpr u32 profile_clocks_before(u32 tasks) { return tasks / kTasksOfClock + (tasks % kTasksOfClock != 0 ? 1 : 0); }
/// Pair number `index`: of the task `index` * kTasksOfClock, or the one behind the last of them.
inline ProfileClock* profile_clock_pair(const Launch& launch, u32 worker, u32 index) {
  const u32 capacity = profile_clock_capacity(launch.profile_capacity);
  return launch.profile_clocks + static_cast<u64>(worker) * capacity + (index & (capacity - 1));
}

/// Where a worker's next record goes.
inline ProfileRecord* profile_record(const Launch& launch, u32 worker, u32 tasks_done) {
  return launch.profile + static_cast<u64>(worker) * launch.profile_capacity +
         (tasks_done & (launch.profile_capacity - 1));
}

}  // namespace megalith::runtime
