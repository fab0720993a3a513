// Barriers over everything: no thread of a GPU waits for all others inside of a kernel, so a kernel that has one becomes
// several, which run one after the other. What a temporary hands from one to another lies in global memory, and is an
// output of the first and an input of the others. The nest (loop/nest.h) shares no loop over such a barrier, so each part
// means what it meant in the whole.
#pragma once

#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// True if the kernel has a barrier over everything.
bool has_stages(const Kernel& kernel);

/// The part, counted from 0, that each instruction is in.
std::vector<size_t> stage_of_instructions(const Kernel& kernel);

/// The kernels of the parts, called NAME_0, NAME_1, ...; the kernel itself if it has one part. Types and shapes are known.
/// UserError if a temporary that is said to be a thread's or a block's is needed in two of them.
std::vector<Kernel> split_stages(const Kernel& kernel);

}  // namespace megalith::loop
