// Schedules of a generated body that are worth measuring (engine/tune.h): the proposed one, and others in which one or two of
// its loops and sums go to threads otherwise, or two loops change places. Every one is legal, and no two give the same code.
#pragma once

#include <string>
#include <vector>

#include "megalith/codegen/body_schedule.h"

namespace megalith::codegen {

/// At most `most`, the one of default_schedule() first. `bound`: lowered.kernel with its static sizes put in (loop::bind).
std::vector<std::string> schedule_candidates(const graph::LoweredKernel& lowered, const loop::Kernel& bound,
                                             const Dialect& dialect, size_t most);

}  // namespace megalith::codegen
