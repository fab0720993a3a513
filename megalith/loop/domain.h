// isl for loop kernels: the context, a kernel's domains as isl sets, and what a code generator needs of them: loop
// bounds and guards as C text.
//
// A generator walks the nest of loop/nest.h and keeps the set of points that its loops and guards implement so far:
//
//   void emit(const NestNode& node, std::vector<std::string> outer, isl::set implemented) {
//     if (node.iname.empty()) {
//       const Instruction& insn = kernel.instructions[node.instruction];
//       for (const std::string& guard : guards(domains.over(insn.within), implemented)) ...      // if (guard)
//     } else {
//       LoopBounds bounds = loop_bounds(loop_domain(domains, kernel, node, outer), node.iname, outer);
//       ...                                            // for (i = max(bounds.lower...); i < min(bounds.upper...); ++i)
//       for (const NestNode& child : node.body) emit(child, outer + node.iname, enter_loop(implemented, bounds));
//     }
//   }
//   emit(root, {}, parameter_context(kernel, binding));
#pragma once

#include <isl/cpp.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

struct NestNode;

/// One isl context per thread (isl contexts are not thread safe). isl errors come out as exceptions.
isl::ctx isl_context();

/// All domains of the kernel as one set over all inames (in Kernel::inames() order), parameters and assumptions
/// included.
isl::set kernel_domain(const Kernel& kernel);
/// The same with the binding's sizes put in for the parameters named in it.
isl::set kernel_domain(const Kernel& kernel, const Binding& binding);
/// The projection of `domain` (a kernel_domain()) onto instruction.within and `extra` inames, e.g. those of a
/// reduction. Where domains are separate texts, Domains::over() is the exact answer: it leaves out domains that the
/// instruction has nothing to do with, which matters when one of those is empty.
isl::set instruction_domain(const isl::set& domain, const Kernel& kernel, const Instruction& instruction,
                            const std::vector<std::string>& extra = {});

/// The domains of a kernel, read once: gives the points of any group of its inames.
class Domains {
 public:
  explicit Domains(const Kernel& kernel, const Binding& binding = {});

  /// The points over `inames` (dimensions in the order of Kernel::inames()): the domain texts that list one of them, or
  /// that list an iname which those texts mention, intersected, and projected onto `inames`.
  isl::set over(const std::vector<std::string>& inames) const;
  /// A text that over() follows from, and nothing else does: answers about these points are kept by it.
  const std::string& question(const std::vector<std::string>& inames) const;
  /// The values the parameters may take: assumptions, with the binding's sizes put in; a set without dimensions.
  isl::set context() const { return context_; }
  /// `inames` in the order of Kernel::inames().
  std::vector<std::string> sorted(const std::vector<std::string>& inames) const;
  /// All inames, in order.
  const std::vector<std::string>& inames() const { return inames_; }

 private:
  struct Part {
    std::string body;
    std::vector<std::string> inames;    // that the text lists
    std::vector<std::string> mentions;  // inames of other texts
  };
  std::vector<std::string> inames_;
  std::map<std::string, size_t> places_;  // of inames among inames_
  std::vector<std::string> parameters_;
  std::string prefix_;
  std::string about_;  // what all answers depend on: parameters and assumptions
  std::vector<Part> parts_;
  std::map<std::string, std::vector<size_t>> parts_of_;  // the texts that list an iname
  isl::set context_;
  struct Answer {
    std::string question;
    isl::set points;
  };
  mutable std::map<std::vector<std::string>, Answer> known_;  // by inames

  const Answer& answer(const std::vector<std::string>& inames) const;
  Answer read(const std::vector<std::string>& inames) const;
};

/// Names of the set's parameters, then of its dimensions: the variables of affine.h forms made from it.
std::vector<std::string> variable_names(const isl::set& set);
/// The set projected onto the dimensions `onto`, in that order.
isl::set project_dimensions(const isl::set& set, const std::vector<std::string>& onto);

/// Throws nothing: calls `complain` with the index of the first domain text that isl cannot read (-1: the assumptions)
/// and the reason. What isl may spend on one text is bounded.
void check_domain_texts(const Kernel& kernel, const std::function<void(int, const std::string&)>& complain);

/// True if `expr` is affine in inames and parameters (with // and mod by constants); no data, no attributes.
bool is_affine(const Kernel& kernel, const Expr& expr);

/// The kernel with the binding's sizes written in for the parameters they name (in domains, shapes, expressions and
/// assumptions), so that `h // G` becomes affine. Attributes stay.
Kernel bind_sizes(const Kernel& kernel, const Binding& binding);

/// The affine form on the dimensions and parameters that `space` (of a set) names; nothing if `expr` is not affine in
/// them.
std::optional<isl::aff> to_isl_aff(const isl::space& space, const Expr& expr);
/// Where in `space` the condition holds: comparisons of affine forms joined by and, or, not; nothing for other
/// conditions.
std::optional<isl::set> to_isl_set(const isl::space& space, const Expr& condition);
/// The integer that an expression of numbers alone has.
std::optional<int64_t> constant_value(const Expr& expr);

// ---- for code generators -----------------------------------------------------------------------

/// The bounds of one loop: for (iname = max(lower...); iname < min(upper...); ++iname). Each entry is a C expression
/// over outer inames and parameters in 64-bit integers; it uses floord(a, b) (floor division, b > 0), min(a, b) and
/// max(a, b), which the generated source must define. Entries that the outer loops imply are left out.
struct LoopBounds {
  std::vector<std::string> lower;
  std::vector<std::string> upper;  // exclusive
  isl::set implemented;            // over outer + iname: the points between the bounds
};

/// Bounds of `iname` in `domain` once the inames `outer` are fixed; other inames of the domain are projected out.
/// UserError when the iname has no lower or no upper bound.
LoopBounds loop_bounds(const isl::set& domain, const std::string& iname, const std::vector<std::string>& outer);

/// Of one iname by itself, over all that the domains allow; the answer is kept.
LoopBounds iname_bounds(const Domains& domains, const std::string& iname);

/// The conditions, as C expressions to be joined by &&, that single out `wanted` from the points `implemented` (both
/// over the same inames). Empty if the loops implement the domain exactly.
std::vector<std::string> guards(const isl::set& wanted, const isl::set& implemented);

/// Where the nest starts: no inames, the parameters as the kernel assumes them.
isl::set parameter_context(const Kernel& kernel, const Binding& binding = {});
/// What is implemented inside the loop of `bounds`, given what is implemented around it.
isl::set enter_loop(const isl::set& implemented, const LoopBounds& bounds);
/// Whether a loop, inside of which the points `inside` are implemented, has no iteration at some of the points `outside`,
/// which are implemented around it.
bool may_be_empty(const isl::set& inside, const isl::set& outside);
/// What the loop `node` must cover below the loops `outer`: the union of the domains of all instructions in it,
/// projected onto outer and the loop's iname.
isl::set loop_domain(const Domains& domains, const Kernel& kernel, const NestNode& node,
                     const std::vector<std::string>& outer);

}  // namespace megalith::loop
