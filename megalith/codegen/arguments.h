// The argument convention between tasks and bodies, the same for generated and hand-tuned ones: a struct with the
// operands' pointers, sizes and attributes as constants, dynamic sizes as they are now, and the task's range of every
// tiled iname, and the function that fills it in from a task record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/codegen/dialect.h"
#include "megalith/graph/lower.h"

namespace megalith::codegen {

/// Whether the node's body takes weights from its stream in int8.
bool streams_int8(const graph::LoweredKernel& lowered);

/// A tensor's name as a member: its own, unless that is a word of C++.
std::string member_name(const std::string& tensor);

/// A kernel's operands, in the order in which a task has them.
std::vector<const loop::TensorArgument*> operands_of(const graph::LoweredKernel& lowered);

/// What a body is given beside its operands and ranges.
struct ArgumentExtras {
  bool has_checks = false;    // `faults`; and for a hand-written body `Checks`, the number of each operand's
  int64_t scratch_bytes = 0;  // kScratchBytes: room that a hand-written body has in scratch
};

/// struct NAME_args. `bound`: lowered.kernel with its static sizes put in.
std::string write_arguments_struct(const graph::LoweredKernel& lowered, const loop::Kernel& bound,
                                   const ArgumentExtras& extras, const Dialect& dialect);
/// NAME_args NAME_arguments(task, operands, scratch, iteration, launch).
std::string write_arguments_function(const graph::LoweredKernel& lowered, const loop::Kernel& bound,
                                     const ArgumentExtras& extras, const Dialect& dialect);

}  // namespace megalith::codegen
