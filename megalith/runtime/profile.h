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
};

/// Where a worker's next record goes.
inline ProfileRecord* profile_record(const Launch& launch, u32 worker, u32 tasks_done) {
  return launch.profile + static_cast<u64>(worker) * launch.profile_capacity +
         (tasks_done & (launch.profile_capacity - 1));
}

}  // namespace megalith::runtime
