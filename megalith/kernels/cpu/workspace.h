// What bodies work in that is as large as a model makes it: scratch, a part of the worker's own, and not its stack, whose
// size no model may decide. The host sets aside what graph::TunedBody::area_bytes says.
#pragma once

#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// Room for `kCount` of T, with whatever is left there from tasks before.
template <class T, i64 kCount, class Args>
MEGALITH_INLINE inline T* workspace(const Args& a) {
  static_assert(kCount * static_cast<i64>(sizeof(T)) <= Args::kScratchBytes && alignof(T) <= 64,
                "TunedBody::area_bytes says how much room a body has");
  return reinterpret_cast<T*>(a.scratch);
}

}  // namespace megalith::kernels
