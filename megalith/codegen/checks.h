// Checks of what data decides, put into a kernel before it becomes code: each subscript that is neither affine, so that
// loop::check_bounds() has proved it, nor inside by the range of its values, and each divisor that may be 0. They are
// calls that no text of a loop kernel can contain, of functions of kernels/<target>/check.h:
//
//   inside(subscript, extent, number)      what is read at: the subscript, or 0 and a fault
//   nonzero(divisor, number)               the divisor, or 1 and a fault
//   is_inside(), is_nonzero()              whether there is none: conditions of an instruction whose target data decides
#pragma once

#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/graph/lower.h"
#include "megalith/loop/kernel.h"

namespace megalith::codegen {

/// Puts them in; their texts, by number. `kernel` has its static sizes put in. What is stored as a narrower whole number
/// than it may be becomes a cast, which ends at the edges of its type.
std::vector<CheckText> add_checks(loop::Kernel& kernel);
/// The same of a kernel whose sizes may be names; without looking twice at one that needs none.
std::vector<CheckText> add_checks_where_needed(loop::Kernel& kernel);

/// True of a condition that add_checks() made: what it tests is safe to evaluate without it.
bool is_check_of_target(const loop::Expr& condition);
/// True of what a check gives to go on with: inside(), nonzero().
bool is_checked_value(const loop::Expr& expr);
/// True if evaluating the expression may note a fault: then it is evaluated only where the kernel says so.
bool has_check(const loop::Expr& expr);

/// Of a hand-written body: one check for each integer operand, numbered as the operands are. Empty if it has none that
/// says where something is.
std::vector<CheckText> checks_of_operands(const graph::LoweredKernel& lowered);

}  // namespace megalith::codegen
