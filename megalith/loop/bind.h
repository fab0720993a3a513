// Puts numbers in for a kernel's size parameters, so that products of sizes and inames (g * D + d) become affine.
#pragma once

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// The kernel with every parameter that is not dynamic replaced by its value, in domains, shapes and instructions.
/// Dynamic parameters stay, assumed to lie between 0 and their value in the binding. Attributes stay. UserError if a
/// parameter has no value. (bind_sizes() in loop/domain.h puts in whatever has a value, dynamic or not.)
Kernel bind(const Kernel& kernel, const Binding& binding);

}  // namespace megalith::loop
