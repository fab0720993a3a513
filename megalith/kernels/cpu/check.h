// Checks of what data decides (kernels/inside.h) in a body: the first fault of a run is noted for the worker, which ends the run
// (runtime/protocol.h), and the host says which operator's data it was.
#pragma once

#include "megalith/kernels/inside.h"
#include "megalith/runtime/protocol.h"

namespace megalith::kernels {

/// Where a body notes a fault.
struct FaultNote {
  runtime::Fault* fault;
};

__attribute__((noinline, cold)) inline void note_fault(FaultNote note, u32 check, i64 value, i64 extent) {
  if (note.fault->found != 0) return;
  note.fault->found = 1;
  note.fault->check = check;
  note.fault->value = value;
  note.fault->extent = extent;
}

static_assert(kNoExtent == runtime::kDivides);

}  // namespace megalith::kernels
