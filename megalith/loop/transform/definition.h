// The one assignment to a temporary whose value may stand wherever the temporary is read. Internal to loop/transform/.
#pragma once

#include <string>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// The number of the instruction that assigns `temporary`. UserError where its value could not stand for a read: there is
/// a condition, a second assignment, an iname that the subscripts lack, or something it reads changes in between.
size_t find_definition(const Kernel& kernel, const std::string& temporary);

/// `value`, of type `from`, as reading it back from a temporary of type `dtype` gives it: one narrower than f32 rounds.
Expr rounded_as(DType dtype, Expr value, DType from);

/// What waited for the definition, which is gone, waits for what that waited for.
void inherit_dependences(Kernel& kernel, const Instruction& definition);

}  // namespace megalith::loop
