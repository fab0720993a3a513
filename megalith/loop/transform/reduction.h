// The reduction that a step takes out of its instruction. Internal to loop/transform/.
#pragma once

#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

struct FoundReduction {
  size_t instruction = 0;
  Expr* expr = nullptr;
};

/// The one reduction that runs over all of `inames`, and maybe more. UserError if there is none, or two.
FoundReduction find_reduction(Kernel& kernel, const std::vector<std::string>& inames);
/// The same, but an argmax is refused: it is no sum.
FoundReduction find_sum(Kernel& kernel, const std::vector<std::string>& inames);

/// UserError unless the reduction's value is there for each point of the instruction that it is in: it stands inside of no
/// condition and of no other reduction, and does not read what the instruction writes.
void check_can_leave(const Kernel& kernel, const Instruction& instruction, const Expr& reduce);

/// accumulate() of `found`, an expression of the instruction `at` of `result`, which is a copy of `kernel`.
Kernel accumulated(const Kernel& kernel, Kernel result, size_t at, Expr* found, const std::vector<std::string>& inames,
                   const std::string& sum);

/// What a reduction over nothing gives, in its type, and what it makes of two values.
Expr neutral_of(const Expr& reduce);
Expr combined(ReduceOp op, Expr a, Expr b);

/// `reduce` over what it runs over beside `inames`; its term, or nothing where its condition does not hold, if that is all.
Expr without_inames(const Expr& reduce, const std::vector<std::string>& inames);

/// UserError if what `reduce` reads where its instruction stands changes on the way to the instruction `id` of `after`, to
/// which it was moved: loops that they shared with others may have come apart.
void check_reads_kept(const Kernel& before, size_t instruction, const Kernel& after, const std::string& id);

/// An id that no instruction of the kernel has: `wanted`, or that with something behind it.
std::string free_id(const Kernel& kernel, const std::string& wanted);

}  // namespace megalith::loop
