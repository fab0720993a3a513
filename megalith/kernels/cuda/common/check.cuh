// kernels/cpu/check.h on a GPU: the first thread of a worker that finds a fault notes it in the worker's status and sets
// the abort word, which ends waits at once and the run at the next gate. Until then bodies go on, on subscripts that are
// inside.
#pragma once

#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"
#include "megalith/kernels/inside.h"
#include "megalith/runtime/protocol.h"

namespace megalith::kernels {

/// Of the worker's status (W3), in device memory.
inline runtime::Fault*& worker_fault() { return shared_variable<runtime::Fault*, place::kFault, place::kEnd>(); }

/// Which task a body runs.
struct FaultNote {
  const u32* task;
};

inline void note_fault(FaultNote note, u32 check, i64 value, i64 extent) {
  runtime::Fault* const fault = worker_fault();
  // After an abort what is there may be anything.
  if (flag_is_set(&stopped()) || load_relaxed(abort_word()) != 0) return;
  if (atomic_add(&fault->found, 1u) != 0) return;
  fault->task = *note.task;
  fault->check = check;
  fault->value = value;
  fault->extent = extent;
  store_relaxed(const_cast<u32*>(abort_word()), static_cast<u32>(runtime::kAbortFault));
}

static_assert(kNoExtent == runtime::kDivides);

/// inside() where 32 bits are enough for both.
inline int inside_32(FaultNote note, int value, int extent, u32 check) {
  if (static_cast<u32>(value) < static_cast<u32>(extent)) [[likely]]
    return value;
  note_fault(note, check, value, extent);
  return 0;
}
/// The same of what row `row` says: rows that are not there today may say anything.
template <class Args>
inline int inside_of_row(const Args& args, i64 row, int value, int extent, u32 check) {
  if (static_cast<u32>(value) < static_cast<u32>(extent)) [[likely]]
    return value;
  if (row < args.T) note_fault(args.faults, check, value, extent);
  return 0;
}

}  // namespace megalith::kernels
