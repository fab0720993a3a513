// isl for loop kernels: the context, a kernel's domains as isl sets, and integer bounds as text for code generators.
#pragma once

#include <isl/cpp.h>

#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// One isl context per thread (isl contexts are not thread safe). isl errors come out as exceptions.
isl::ctx isl_context();

/// All domains of the kernel as one set over all inames (in Kernel::inames() order), parameters and assumptions included.
isl::set kernel_domain(const Kernel& kernel);
/// The same with the binding's sizes put in for the parameters named in it.
isl::set kernel_domain(const Kernel& kernel, const Binding& binding);
/// The domain of one instruction, over instruction.within (and `extra` inames, e.g. those of a reduction).
isl::set instruction_domain(const isl::set& domain, const Kernel& kernel, const Instruction& instruction,
                            const std::vector<std::string>& extra = {});

/// True if `expr` is affine in inames and parameters (with // and mod by constants); no data, no attributes.
bool is_affine(const Kernel& kernel, const Expr& expr);

}  // namespace megalith::loop
