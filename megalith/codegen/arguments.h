// The argument convention between tasks and bodies, the same for generated and hand-tuned ones: a struct with the
// operands' pointers, sizes and attributes as constants, dynamic sizes as they are now, and the task's range of every
// tiled iname, and the function that fills it in from a task record.
#pragma once

#include <string>

#include "megalith/graph/lower.h"

namespace megalith::codegen {

/// A tensor's name as a member: its own, unless that is a word of C++.
std::string member_name(const std::string& tensor);

/// struct NAME_args. `bound`: lowered.kernel with its static sizes put in.
std::string write_arguments_struct(const graph::LoweredKernel& lowered, const loop::Kernel& bound);
/// NAME_args NAME_arguments(task, operands, scratch, iteration, launch).
std::string write_arguments_function(const graph::LoweredKernel& lowered, const loop::Kernel& bound);

}  // namespace megalith::codegen
