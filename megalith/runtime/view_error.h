// What a kernel whose views look at every access (kernels/view.h) tells the host: the first access outside of its slice.
// Freestanding plain data, shared by both.
#pragma once

#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

/// `view` is nullptr if there was none. A watched kernel has one as a global variable, "megalith_view_error".
struct ViewError {
  const char* view;
  i64 dimension, index, begin, end;
};

}  // namespace megalith::runtime
