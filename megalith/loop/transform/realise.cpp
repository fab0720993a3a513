// realise_reductions, realise_dealt_out
//
//   y[t] = sum(k, e)    k tagged l.0, w: as reduce_by_tree() does it; lane: the same, in registers where all lanes come along;
//                       g.0: part[t, k] = e, in each block; then, behind a barrier over all blocks, y[t] = sum(k, part[t, k]);
//                       others: as accumulate() does it
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "megalith/loop/parallel.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/reduction.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// A reduction over an iname that is dealt out.
struct DealtOut {
  size_t instruction = 0;
  size_t number = 0;  // among the expressions of the instruction
  std::string iname;
  int axis = 0;
};

bool is_dealt_out(const Kernel& kernel, const Expr& expr) {
  return (expr.kind == Expr::Kind::reduce &&
          std::ranges::any_of(expr.inames, [&](const auto& iname) { return axis_of(kernel, iname).has_value(); })) ||
         std::ranges::any_of(expr.args, [&](const Expr& arg) { return is_dealt_out(kernel, arg); });
}

// The outermost axis first, blocks before threads: the part that it leaves in each has the next one in it.
std::optional<DealtOut> find_dealt_out(Kernel& kernel) {
  const auto rank = [](int axis) { return is_block_axis(axis) ? axis : kNumAxes + kNumAxes - axis; };
  std::optional<DealtOut> found;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    size_t number = 0;
    for_each_expression(kernel.instructions[i], [&](const Expr& expr) {
      ++number;
      if (expr.kind != Expr::Kind::reduce) return;
      for (const std::string& iname : expr.inames)
        if (const auto axis = axis_of(kernel, iname); axis && (!found || rank(*axis) < rank(found->axis)))
          found = {i, number - 1, iname, *axis};
    });
  }
  return found;
}

// The same with the iname used by that one reduction alone: by a copy, if others use it, too. What else is dealt out of the
// reduction is copied with it: the values of one may depend on the other.
Kernel with_own_iname(const Kernel& kernel, DealtOut& what) {
  Kernel result = kernel;
  bool is_shared = false;
  std::vector<std::string> inames;
  for (size_t i = 0; i < result.instructions.size(); ++i) {
    size_t number = 0;
    is_shared |= is_among(result.instructions[i].within, what.iname);
    for_each_expression(result.instructions[i], [&](const Expr& expr) {
      const bool is_it = i == what.instruction && number++ == what.number;
      if (is_it) inames = expr.inames;
      is_shared |= !is_it && expr.kind == Expr::Kind::reduce && is_among(expr.inames, what.iname);
    });
  }
  if (!is_shared) return result;
  std::map<std::string, std::string> copies;
  std::set<std::string> taken;
  for (const std::string& iname : inames)
    if (axis_of(kernel, iname)) taken.insert(copies[iname] = free_name(kernel, iname + "_r", taken));
  result = duplicate_in_reduction(kernel, copies, what.instruction, what.number);
  what.iname = copies.at(what.iname);
  return result;
}

// The iname's loop around those over other threads that the instruction is in: barriers stand between the levels of a tree, and
// none inside of a loop over threads.
Kernel with_iname_outside(const Kernel& kernel, const DealtOut& what) {
  std::vector<std::string> inames = {what.iname};
  bool is_outside = true;
  for (const std::string& iname : kernel.inames()) {
    if (iname == what.iname) break;
    const auto axis = axis_of(kernel, iname);
    if (!axis || is_block_axis(*axis) || !is_among(kernel.instructions[what.instruction].within, iname)) continue;
    inames.push_back(iname);
    is_outside = false;
  }
  return is_outside ? kernel : prioritise(kernel, inames);
}

// Of the lanes of a warp, in their registers, if all of them come along where they read of each other.
Kernel in_lanes(const Kernel& kernel, const std::string& part) {
  try {
    Kernel result = set_space(kernel, part, Space::warp);
    for (const Kernel& stage : split_stages(result)) make_parallel(stage);
    return result;
  } catch (const UserError&) { return kernel; }
}

Kernel over_blocks(const Kernel& kernel, const DealtOut& what, const std::string& part) {
  const std::string id = kernel.instructions[what.instruction].id,
                    copy = free_name(kernel, what.iname + "_all", {part});
  Kernel result = split_reduction(kernel, {what.iname}, part);
  result = duplicate_inames(result, {{what.iname, copy}}, {id});
  result.tags.erase(copy);
  return add_barrier(result, id);
}

Kernel realised(const Kernel& kernel, DealtOut what) {
  const InameTag tag = tag_of(kernel, what.iname);
  Kernel own = with_own_iname(kernel, what);
  const std::string part = free_name(own, "part");
  if (is_block_axis(what.axis)) return over_blocks(own, what, part);
  Kernel result = reduce_by_tree(with_iname_outside(own, what), what.iname, 0, part, what.iname, tag);
  return tag == InameTag::lane ? in_lanes(result, part) : result;
}

}  // namespace

Kernel realise_dealt_out(const Kernel& kernel) {
  if (std::ranges::none_of(kernel.instructions, [&](const Instruction& instruction) {
        return is_dealt_out(kernel, instruction.target) || is_dealt_out(kernel, instruction.value) ||
               (instruction.condition && is_dealt_out(kernel, *instruction.condition));
      }))
    return kernel;
  Kernel result = kernel;
  while (const auto what = find_dealt_out(result)) {
    const std::string id = result.instructions[what->instruction].id;
    try {
      result = realised(result, *what);
    } catch (const UserError& error) {
      std::string reason = error.what();
      if (const std::string prefix = message_prefix(kernel.name) + " "; reason.starts_with(prefix))
        reason.erase(0, prefix.size());
      refuse(kernel, "instruction \"{}\" reduces over {}, which is tagged {}, and no thread has a part of a sum: {}",
             id, what->iname, tag_name(tag_of(result, what->iname)), reason);
    }
  }
  return result;
}

Kernel realise_reductions(const Kernel& kernel) {
  Kernel result = realise_dealt_out(kernel);
  for (size_t at = 0; at < result.instructions.size();) {
    // Into `result`, if one of the instruction's can leave it: two instructions before it then.
    const auto realise_one = [&] {
      size_t count = 0;
      for_each_expression(result.instructions[at], [&](const Expr& expr) { count += expr.kind == Expr::Kind::reduce; });
      for (size_t which = 0; which < count; ++which) {
        Kernel next = result;
        Expr* found = nullptr;
        size_t number = 0;
        for_each_expression(next.instructions[at], [&](Expr& expr) {
          if (expr.kind == Expr::Kind::reduce && number++ == which) found = &expr;
        });
        if (found->reduce == ReduceOp::argmax) continue;
        const std::vector<std::string> inames = found->inames;
        try {
          result = accumulated(result, std::move(next), at, found, inames, free_name(result, "sum"));
          return true;
        } catch (const UserError&) {  // it stays a reduction
        }
      }
      return false;
    };
    at += realise_one() ? 2 : 1;
  }
  return result;
}

}  // namespace megalith::loop
