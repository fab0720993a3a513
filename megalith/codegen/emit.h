// Emit: lowered kernels to one readable C++ source, the persistent kernel: the protocol and the worker loop, the tuned
// bodies that are used, one function per lowered kernel, and the switch that chooses among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/graph/lower.h"

namespace megalith::codegen {

struct EmittedSource {
  std::string text;
  int64_t scratch_bytes = 0;  // per worker, for temporaries that are too large for registers and stack
};

/// The source exports
///   extern "C" void megalith_worker(const megalith::runtime::Launch* launch, unsigned worker);
///   extern "C" const char megalith_kernel_info[];   // JSON: version, bodies' names, scratch_bytes
/// `title` (the graph's name, sizes, anything for the reader) goes into the comment at the top.
EmittedSource emit_cpu(const std::vector<graph::LoweredKernel>& kernels, const std::string& title);

}  // namespace megalith::codegen
