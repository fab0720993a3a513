// Checks that a loop kernel means one thing: every access inside its tensor, no two points of parallel (task) inames
// writing the same element, every read of a temporary after a write of it, every name known. Run by lower for each
// operator; each error names kernel, instruction and tensor.
#pragma once

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Runs all checks below on a kernel whose types and shapes are known; UserError at the first that fails.
void check_kernel(const Kernel& kernel);

/// Names resolve, functions exist with the right number of arguments, instruction ids unique, dependences exist.
void check_names(const Kernel& kernel);
/// Every affine subscript stays inside the tensor's shape for all parameter values that the assumptions allow.
void check_bounds(const Kernel& kernel);
/// Writes of points that differ in an iname that the target's subscripts leave out would race when that iname is
/// parallel (tagged task), and are an error too when nothing orders them.
void check_write_races(const Kernel& kernel);
/// Two instructions that touch the same element, one writing it, are ordered: by the nest's text order or by dep=.
void check_access_order(const Kernel& kernel);

}  // namespace megalith::loop
