// Every expression of an instruction together with the points at which it is evaluated. Bounds checks, footprints,
// counts and inference all are questions about these; what guards an expression is worked out here and nowhere else.
#pragma once

#include <isl/cpp.h>

#include <functional>
#include <string>
#include <vector>

#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// A condition that holds (or does not) wherever the guarded expression is evaluated.
struct Guard {
  const Expr* condition = nullptr;
  bool holds = true;
};

struct Place {
  std::vector<std::string> inames;  // instruction.within, then those of the reductions around the expression
  std::vector<Guard> guards;        // of the instruction, of reductions, of `if`, `and`, `or`
  bool in_subscript = false;
  bool is_target = false;  // the instruction's target: the one access that writes
  bool in_target = false;  // that, or part of its subscripts
};

/// Calls `visit` for every node of target, value and condition, parents first.
void visit_expressions(const Instruction& instruction, const std::function<void(const Expr&, const Place&)>& visit);

/// The same with expressions that `rewrite` may replace: children first, so that a parent sees what became of them.
void rewrite_expressions(Instruction& instruction, const std::function<void(Expr&, const Place&)>& rewrite);

/// The points over place.inames (in the domains' order) at which the expression is evaluated, as far as it is affine:
/// guards that depend on data count as true either way.
isl::set place_domain(const Domains& domains, const Place& place);

/// A text that place_domain() follows from, projected onto place.inames in their order.
std::string place_question(const Domains& domains, const Place& place);

/// Whether an instruction is within the iname, or reduces over it.
bool uses_iname(const Instruction& instruction, const std::string& iname);

/// The names of the tensors read in `expr`.
std::vector<std::string> tensors_read(const Expr& expr);

}  // namespace megalith::loop
