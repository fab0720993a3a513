// Write races and access order: questions about pairs of points that touch the same element.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/check.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_task(const Kernel& kernel, const std::string& iname) {
  const auto tag = kernel.tags.find(iname);
  return tag != kernel.tags.end() && tag->second == InameTag::task;
}

// x -> y with x[d] > y[d].
isl::map after(const isl::map& like, unsigned d) {
  return isl::manage(isl_map_order_gt(isl_map_universe(like.space().release()), isl_dim_in, static_cast<int>(d),
                                      isl_dim_out, static_cast<int>(d)));
}

bool reads_target(const Instruction& instruction) {
  bool found = false;
  visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
    found |= !place.is_target && expr.kind == Expr::Kind::subscript && same_expression(expr, instruction.target);
  });
  return found;
}

// Inames that stand in a subscript which is not affine: the data there is trusted to tell them apart.
std::vector<std::string> told_apart_by_data(const Instruction& instruction, const ElementMap& elements) {
  std::vector<std::string> names;
  for (const std::string& iname : instruction.within)
    for (size_t d = 0; d < elements.is_affine.size(); ++d)
      if (!elements.is_affine[d] && mentions(instruction.target.args[d], iname) && !contains(names, iname))
        names.push_back(iname);
  return names;
}

void check_write_race(const Kernel& kernel, const Domains& domains, const Instruction& instruction) {
  Place place;
  visit_expressions(instruction, [&](const Expr&, const Place& p) {
    if (p.is_target) place = p;
  });
  const isl::set points = place_domain(domains, place);
  const ElementMap elements = element_map(points, instruction.target.args);
  isl::map same = elements.map.apply_range(elements.map.reverse());
  for (const std::string& iname : told_apart_by_data(instruction, elements)) {
    const auto at = static_cast<unsigned>(std::ranges::find(instruction.within, iname) - instruction.within.begin());
    same = same.intersect(compared(same, at, at, true));
  }
  const bool is_update = reads_target(instruction);
  const std::string prefix = fmt::format("{} instruction \"{}\"", message_prefix(kernel.name), instruction.id);
  for (unsigned d = 0; d < instruction.within.size(); ++d) {
    const std::string& iname = instruction.within[d];
    if (is_update && !is_task(kernel, iname)) continue;
    if (same.intersect(compared(same, d, d, false)).is_empty()) continue;
    const std::string target = print(instruction.target);
    MEGALITH_CHECK(
        mentions(instruction.target, iname),
        "{} writes {} within {}, but the subscripts leave out {}: every {} writes the same element of {}; reduce "
        "over {}, or put it into the subscripts",
        prefix, target, fmt::join(instruction.within, ", "), iname, iname, instruction.target.name, iname);
    throw UserError(fmt::format("{} writes the same element {} for different values of {}", prefix, target, iname));
  }
}

class OrderCheck {
 public:
  explicit OrderCheck(const Kernel& kernel)
      : kernel_(kernel),
        domains_(kernel),
        accesses_(tensor_accesses(kernel, domains_, [&](const std::string& name) { return is_written(name); })),
        cut_(cut_inames(kernel, domains_)) {}

  void run() {
    for (const TensorAccess& a : accesses_)
      for (const TensorAccess& b : accesses_) {
        if (a.expr->name != b.expr->name || (!a.is_write && !b.is_write)) continue;
        if (a.instruction < b.instruction) check_pair(a, b);
        if (a.instruction <= b.instruction) check_tasks(a, b);
      }
    for (const TensorAccess& access : accesses_)
      if (!access.is_write && is_temporary(access.expr->name)) check_written_before(access);
  }

 private:
  const Kernel& kernel_;
  Domains domains_;
  std::vector<TensorAccess> accesses_;
  std::vector<std::string> cut_;

  bool is_written(const std::string& name) const {
    return std::ranges::any_of(kernel_.instructions, [&](const Instruction& i) { return i.target.name == name; });
  }

  bool is_temporary(const std::string& name) const {
    const TensorArgument* tensor = kernel_.find_tensor(name);
    return tensor && tensor->role == Role::temporary;
  }

  const std::string& id(const TensorAccess& access) const { return kernel_.instructions[access.instruction].id; }

  // True if both have the bare iname as the same subscript: points that meet agree in it. Spares isl the usual case.
  static bool agree_in(const TensorAccess& a, const TensorAccess& b, const std::string& iname) {
    for (size_t d = 0; d < std::min(a.expr->args.size(), b.expr->args.size()); ++d) {
      const Expr &x = a.expr->args[d], &y = b.expr->args[d];
      if (x.kind == Expr::Kind::name && y.kind == Expr::Kind::name && x.name == iname && y.name == iname) return true;
    }
    return false;
  }

  void check_pair(const TensorAccess& a, const TensorAccess& b) const {
    const std::vector<std::string>& within = kernel_.instructions[a.instruction].within;
    const size_t shared = shared_loops(kernel_, a.instruction, b.instruction);
    if (std::all_of(within.begin(), within.begin() + static_cast<ptrdiff_t>(shared),
                    [&](const std::string& iname) { return agree_in(a, b, iname); }))
      return;
    const auto meet = meetings(a, b);
    if (!meet) return;
    // b runs before a where it is at an earlier point of the shared loops.
    isl::map tied = *meet;
    bool reversed = false, in_order = false;
    for (unsigned d = 0; d < shared; ++d) {
      reversed |= !tied.intersect(after(tied, d)).is_empty();
      in_order |= !tied.intersect(compared(tied, d, d, false)).is_empty();
      tied = tied.intersect(compared(tied, d, d, true));
    }
    in_order |= !tied.is_empty();
    MEGALITH_CHECK(
        !reversed || !in_order,
        "{} instructions \"{}\" and \"{}\" touch the same elements of {}, {} and {}, now in this order and now in "
        "that, inside the loops they share ({}): use other inames in one of them",
        message_prefix(kernel_.name), id(a), id(b), a.expr->name, print(*a.expr), print(*b.expr),
        fmt::join(within.begin(), within.begin() + static_cast<ptrdiff_t>(shared), ", "));
  }

  // `a` stands before `b` in the text, or is of the same instruction.
  void check_tasks(const TensorAccess& a, const TensorAccess& b) const {
    for (const std::string& iname : cut_) {
      const auto in_a = a.position(iname), in_b = b.position(iname);
      if (!in_a || !in_b) {
        check_whole(a, b, iname);
        continue;
      }
      if (agree_in(a, b, iname)) continue;
      const auto meet = meetings(a, b);
      if (!meet) continue;
      MEGALITH_CHECK(
          meet->is_subset(compared(*meet, *in_a, *in_b, true)),
          "{} instructions \"{}\" and \"{}\" touch the same elements of {}, {} and {}, in different tasks: {} is "
          "tagged task, and nothing orders its values",
          message_prefix(kernel_.name), id(a), id(b), a.expr->name, print(*a.expr), print(*b.expr), iname);
    }
  }

  // An access that does not depend on a task's iname is made by every task. Where all tasks write the same, each may
  // read it afterwards; else a task finds there what others have made of it.
  void check_whole(const TensorAccess& a, const TensorAccess& b, const std::string& iname) const {
    if (is_temporary(a.expr->name) || a.is_write == b.is_write) return;
    const TensorAccess &read = a.is_write ? b : a, &write = a.is_write ? a : b;
    if (!write.position(iname) && write.instruction < read.instruction) return;
    if (const auto meet = meetings(read, write); meet && meet->is_empty()) return;
    const std::string prefix =
        fmt::format("{} instruction \"{}\" reads {}", message_prefix(kernel_.name), id(read), print(*read.expr));
    MEGALITH_CHECK(write.position(iname),
                   "{} and \"{}\" writes {} in every task, since {} is tagged task and stands in neither: one task "
                   "finds what another has made of it; leave {} out of the task axes, or write another tensor",
                   prefix, id(write), print(*write.expr), iname, iname);
    throw UserError(fmt::format(
        "{} in every task, since {} is tagged task and does not stand in it, while \"{}\" writes {}: one task finds "
        "what another has made of it; leave {} out of the task axes, or write another tensor",
        prefix, iname, id(write), print(*write.expr), iname));
  }

  void check_written_before(const TensorAccess& read) const {
    if (!read.is_affine()) return;
    isl::set missing = read.elements.map.range();
    for (const TensorAccess& write : accesses_) {
      if (!write.is_write || write.expr->name != read.expr->name) continue;
      if (!write.is_affine() || write.expr->args.size() != read.expr->args.size()) return;
      const bool may_be_before =
          write.instruction < read.instruction || shared_loops(kernel_, read.instruction, write.instruction) > 0;
      if (may_be_before) missing = missing.subtract(write.elements.map.range());
    }
    MEGALITH_CHECK(missing.is_empty(),
                   "{} instruction \"{}\" reads {} of the temporary {}, elements of which nothing writes before",
                   message_prefix(kernel_.name), id(read), print(*read.expr), read.expr->name);
  }
};

}  // namespace

void check_write_races(const Kernel& kernel) {
  const Domains domains(kernel);
  for (const Instruction& instruction : kernel.instructions) check_write_race(kernel, domains, instruction);
}

void check_access_order(const Kernel& kernel) { OrderCheck(kernel).run(); }

}  // namespace megalith::loop
