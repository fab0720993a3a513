// Whether a kernel still is what its tasks were made for: a task restricts tiled inames to its tile, and may touch what the
// kernel touches there, and nothing else.
#pragma once

#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::codegen {

/// UserError if, for some tile of the inames `tiled`, `after` reads more of an operand than `before`, writes something else,
/// or reads of a temporary what the task did not write.
void check_same_regions(const loop::Kernel& before, const loop::Kernel& after, const std::vector<std::string>& tiled);

}  // namespace megalith::codegen
