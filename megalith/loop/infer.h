// Fills in what a kernel's text leaves out: dtypes of temporaries and expressions, shapes of tensors from their
// accesses.
#pragma once

#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Sets every Expr::dtype, and dtype of temporaries and undeclared outputs (fixed point over the instructions).
/// UserError naming instruction and tensor when a type cannot be found or an index is not an integer.
void infer_types(Kernel& kernel);

/// Sets the shape of tensors whose shape is unknown: per dimension one more than the largest subscript, by isl, under
/// the kernel's assumptions. UserError when there is no static maximum, saying for which parameters which subscript
/// wins.
void infer_shapes(Kernel& kernel);

/// What infer_shapes() would set for this one tensor.
std::vector<Expr> inferred_shape(const Kernel& kernel, const std::string& tensor);

}  // namespace megalith::loop
