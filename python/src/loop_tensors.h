// Tensors of a call of a loop kernel, read as fast as their libraries allow: a call of a small kernel costs little more than
// that.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "megalith/runtime/loop_signature.h"

namespace megalith::python {

/// What kind of library an array is of, for outputs that are made like it.
enum class ArrayKind { numpy, torch, device, other };

/// numpy's arrays, torch's tensors and those of megalith.to_device() are read here, all others by megalith.tensors. UserError naming `name` for what cannot be
/// taken. The memory is the object's: it must live until the kernel has run.
ArrayKind read_loop_tensor(nanobind::handle object, const std::string& prefix, const std::string& name,
                           runtime::LoopTensor& tensor);

/// The stream on which torch works now, on that GPU.
void* torch_stream(int ordinal);

}  // namespace megalith::python
