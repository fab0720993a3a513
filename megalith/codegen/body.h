// A generated body: the function that runs one task of a lowered kernel, written from its loop kernel. It walks the
// nest of loop/nest.h, takes bounds and guards from isl, and restricts the tiled inames to the task's ranges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/codegen/dialect.h"
#include "megalith/graph/lower.h"

namespace megalith::codegen {

struct GeneratedBody {
  std::string text;               // of the function `name`, which takes a `name`_args
  int64_t scratch_bytes = 0;      // that it uses of args.scratch
  std::vector<CheckText> checks;  // that it makes, by number
};

/// `bound`: lowered.kernel with its static sizes put in (loop::bind).
GeneratedBody generate_body(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect);

}  // namespace megalith::codegen
