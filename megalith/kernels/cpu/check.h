// Checks of what data decides: a subscript that a tensor's values make, a divisor. Nothing outside is read or written;
// the first fault of a run is noted for the worker, which ends the run (runtime/protocol.h), and the host says which
// operator's data it was. A check is a comparison that holds: what it costs is one instruction or two.
#pragma once

#include "megalith/kernels/cpu/prelude.h"
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

/// Whether 0 <= value < extent; if not, that is a fault. For what would be written elsewhere.
MEGALITH_INLINE inline bool is_inside(FaultNote note, i64 value, i64 extent, u32 check) {
  if (static_cast<u64>(value) < static_cast<u64>(extent)) [[likely]]
    return true;
  note_fault(note, check, value, extent);
  return false;
}
/// A subscript to read at: `value`, or 0 if that is a fault. A tensor's first element is always there.
MEGALITH_INLINE inline i64 inside(FaultNote note, i64 value, i64 extent, u32 check) {
  return is_inside(note, value, extent, check) ? value : 0;
}
/// Whether a divisor is not 0; if it is, that is a fault.
template <class T>
MEGALITH_INLINE inline bool is_nonzero(FaultNote note, T value, u32 check) {
  if (value != 0) [[likely]]
    return true;
  note_fault(note, check, 0, runtime::kDivides);
  return false;
}
/// What is divided by: `value`, or 1 if that is a fault.
template <class T>
MEGALITH_INLINE inline i64 nonzero(FaultNote note, T value, u32 check) {
  return is_nonzero(note, value, check) ? value : 1;
}
MEGALITH_INLINE inline f32 nonzero(FaultNote note, f32 value, u32 check) {
  return is_nonzero(note, value, check) ? value : 1.0f;
}

}  // namespace megalith::kernels
