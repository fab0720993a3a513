// Whether a kernel may be given one tensor for two of its operands, and what it is then. An operator's inputs are what
// they were before it began; so where one of the two is written, every read of an element has to come before its write,
// in any order of the tasks. Lowering asks for each node that does so (graph/lower.h).
#pragma once

#include <string>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// "" if all reads of `reader` come before writes of the same elements of `writer`; else what stands in the way, as in
/// "y[t, n] is written before x[t, k] is read for the last time". `kernel`: types and shapes known, sizes bound, tagged.
std::string why_not_in_place(const Kernel& kernel, const std::string& reader, const std::string& writer);

/// Makes one tensor of two: whatever touched `reader` touches `writer`, which is an inout from now on, so that whoever
/// looks at the kernel sees that it reads what it writes.
void merge_operands(Kernel& kernel, const std::string& reader, const std::string& writer);

}  // namespace megalith::loop
