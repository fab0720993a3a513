// Rules: names for expressions of other expressions, `rule square(a) = a * a`. A way of writing that transformations make
// and use (transform.h: extract_rule() and so on); what is asked of a kernel is asked of it without them.
#pragma once

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Every call of a rule replaced by what it stands for; the kernel itself if it has no rules. Types are inferred anew
/// where they were known. UserError if a rule is called with another number of arguments than it has, or if what comes
/// out is larger than anybody would write.
Kernel without_rules(const Kernel& kernel);

/// `expr` with the calls of the kernel's rules replaced.
Expr without_rules(const Kernel& kernel, const Expr& expr);

}  // namespace megalith::loop
