// Checks that a loop kernel means one thing: every access inside its tensor, no two points of parallel (task) inames
// writing the same element, every read of a temporary after a write of it, every name known. Run by lower for each
// operator; each error names kernel, instruction and tensor.
#pragma once

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Runs all checks below on a kernel whose types and shapes are known; UserError at the first that fails.
void check_kernel(const Kernel& kernel);

/// Names resolve, functions exist with the right number of arguments, instruction ids are unique, dependences name
/// earlier instructions (the nest is built in text order), subscripts are as many as dimensions, inputs are not
/// written, outputs are.
void check_names(const Kernel& kernel);

/// Some sizes fit the assumptions: else no instruction would ever run, and nothing would be wrong with it.
void check_assumptions(const Kernel& kernel);

/// Every affine subscript stays inside the tensor's shape for all parameter values that the assumptions allow.
/// Conditions that are affine count; those that depend on data do not, nor do subscripts that depend on data.
void check_bounds(const Kernel& kernel);

/// No two points of an instruction write the same element: with the target's subscripts leaving out an iname of extent
/// larger than 1, or else not injective, the last point to run would win. An update (the value reads what the target
/// writes) over inames that are not tagged task is a recurrence in loop order, and allowed. Inames inside a subscript
/// that depends on data count as telling points apart.
void check_write_races(const Kernel& kernel);

/// Two instructions that touch the same element, one of them writing, do so in one order: the pairs of points that meet
/// either all run as the text has it or all run the other way round (a recurrence); what mixes both inside shared loops
/// is an error. Points that differ in a task iname are not ordered at all. And what a temporary is read for is written
/// by some instruction that can have run before. Accesses with subscripts that depend on data are left out.
void check_access_order(const Kernel& kernel);

}  // namespace megalith::loop
