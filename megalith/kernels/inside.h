// What is looked at of what data decides: a subscript, a divisor. The first one that is wrong is noted by note_fault(note, check,
// value, extent), which whoever includes this has for its notes; nothing outside is read or written. A look is a comparison that
// holds, and costs an instruction or two.
//
// Freestanding: shared by the CPU's bodies, the GPU's, and kernels of one's own.
#pragma once

#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// The extent that is noted of a divisor that is 0.
inline constexpr i64 kNoExtent = -1;

/// Whether 0 <= value < extent; if not, that is a fault. For what would be written elsewhere.
template <class Note>
MEGALITH_INLINE inline bool is_inside(Note note, i64 value, i64 extent, u32 check) {
  if (static_cast<u64>(value) < static_cast<u64>(extent)) [[likely]]
    return true;
  note_fault(note, check, value, extent);
  return false;
}
/// A subscript to read at: `value`, or 0 if that is a fault. A tensor's first element is always there.
template <class Note>
MEGALITH_INLINE inline i64 inside(Note note, i64 value, i64 extent, u32 check) {
  return is_inside(note, value, extent, check) ? value : 0;
}
/// Whether a divisor is not 0; if it is, that is a fault.
template <class Note, class T>
MEGALITH_INLINE inline bool is_nonzero(Note note, T value, u32 check) {
  if (value != 0) [[likely]]
    return true;
  note_fault(note, check, 0, kNoExtent);
  return false;
}
/// What is divided by: `value`, or 1 if that is a fault.
template <class Note, class T>
MEGALITH_INLINE inline i64 nonzero(Note note, T value, u32 check) {
  return is_nonzero(note, value, check) ? value : 1;
}
template <class Note>
MEGALITH_INLINE inline f32 nonzero(Note note, f32 value, u32 check) {
  return is_nonzero(note, value, check) ? value : 1.0f;
}

}  // namespace megalith::kernels
