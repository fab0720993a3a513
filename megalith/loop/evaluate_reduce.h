// Reductions of the interpreter. A condition that bounds an iname narrows the loop instead of being asked at every
// point: affine parts join the domain, and `s <= position[t]` is asked once, on entry to the loop over s.
#pragma once

#include "megalith/loop/evaluate.h"

namespace megalith::loop {

EvaluablePtr compile_reduction(const Expr& expr, const CompileContext& context);

/// The loops over the dimensions of `domain` (all sizes bound) that come after those of `outer`, outermost first, and
/// in `guard` what they and the points of `outer` do not see to. Slots are those of context.domains.inames().
std::vector<CompiledLoop> compile_loops(const isl::set& domain, const isl::set& outer, const Domains& domains,
                                        AffineSet& guard);

}  // namespace megalith::loop
