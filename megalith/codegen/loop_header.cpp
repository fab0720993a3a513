#include "megalith/codegen/loop_header.h"

#include <fmt/format.h>
#include <isl/set.h>

#include <algorithm>
#include <set>

#include "megalith/codegen/checks.h"
#include "megalith/loop/implied.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::NestNode;

namespace {

void collect_instructions(const NestNode& node, std::vector<int>& found) {
  if (node.instruction >= 0) found.push_back(node.instruction);
  for (const NestNode& child : node.body) collect_instructions(child, found);
}

bool mentions_inner(const Expr& condition, const NestNode& node) {
  return std::ranges::any_of(node.body, [&](const NestNode& child) {
    return (!child.iname.empty() && mentions(condition, child.iname)) || mentions_inner(condition, child);
  });
}

}  // namespace

isl::set narrowed(const isl::set& set, const isl::set& implemented) {
  isl::set wider = isl::manage(isl_set_add_dims(implemented.copy(), isl_dim_set, 1));
  return loop::without_implied(set.intersect(isl::manage(isl_set_reset_space(wider.release(), set.space().release()))));
}

loop::LoopBounds whole_bounds(const loop::Domains& domains, const std::string& iname, const isl::set& wanted,
                              const std::vector<std::string>& outer) {
  const isl::set values = domains.over({iname});
  const isl::val least = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                 most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
  if (!least.is_int() || !most.is_int()) return loop::loop_bounds(wanted, iname, outer);
  const auto last = static_cast<unsigned>(isl_set_dim(wanted.get(), isl_dim_set)) - 1;
  isl_set* all = isl_set_universe(wanted.space().release());
  all = isl_set_lower_bound_val(all, isl_dim_set, last, least.copy());
  all = isl_set_upper_bound_val(all, isl_dim_set, last, most.copy());
  return {.lower = {fmt::format("{}", isl_val_get_num_si(least.get()))},
          .upper = {fmt::format("{}", isl_val_get_num_si(most.get()) + 1)},
          .implemented = isl::manage(all)};
}

bool reads_any(const Expr& expr, const std::set<std::string>& tensors) {
  if (expr.kind == Expr::Kind::subscript && tensors.contains(expr.name)) return true;
  return std::ranges::any_of(expr.args, [&](const Expr& arg) { return reads_any(arg, tensors); });
}

loop::InameTag tag_of_loop(const loop::Kernel& kernel, const NestNode& node) {
  const NestNode* first = &node;
  while (first->instruction < 0) first = &first->body.front();
  return loop::tag_of(kernel, kernel.instructions[static_cast<size_t>(first->instruction)], node.iname);
}

std::vector<int> instructions_in(const NestNode& node) {
  std::vector<int> found;
  collect_instructions(node, found);
  return found;
}

LoopHeaders::LoopHeaders(const ExpressionContext& context, const std::vector<std::string>& tiled) : context_(context) {
  for (const loop::Instruction& instruction : context.kernel.instructions) {
    conditions_.push_back(instruction.condition ? conjuncts(*instruction.condition) : std::vector<Expr>{});
    has_checks_ = has_checks_ || has_check(instruction.target) || has_check(instruction.value) ||
                  (instruction.condition && has_check(*instruction.condition));
  }
  for (const std::string& iname : tiled) {
    const loop::LoopBounds bounds = loop::iname_bounds(context.domains, iname);
    tile_bounds_[iname] = {join_bounds(bounds.lower, "max"), join_bounds(bounds.upper, "min")};
  }
}

LoopHeader LoopHeaders::enter(const NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented,
                              LoopForm form) {
  const std::string& iname = node.iname;
  const isl::set wanted = narrowed(loop::loop_domain(context_.domains, context_.kernel, node, outer), implemented);
  const loop::LoopBounds bounds =
      form.is_whole ? whole_bounds(context_.domains, iname, wanted, outer) : loop::loop_bounds(wanted, iname, outer);
  LoopHeader header{.lower = bounds.lower, .upper = bounds.upper, .conditions = {}, .inside = {}};
  header.inside = loop::enter_loop(implemented, bounds);
  header.may_be_empty = has_checks_ && loop::may_be_empty(header.inside, implemented);
  if (const auto tile = tile_bounds_.find(iname); tile != tile_bounds_.end()) {
    // The task's range was clamped to the iname's own bounds already (see arguments.h).
    std::erase(header.lower, tile->second.lower);
    std::erase(header.upper, tile->second.upper);
    // A task has some of the iname's values, but other bounds may leave it none of them.
    header.may_be_empty = header.may_be_empty || !header.lower.empty() || !header.upper.empty();
    header.lower.insert(header.lower.begin(), iname + "_begin");
    header.upper.insert(header.upper.begin(), iname + "_end");
  }

  if (form.is_whole || !form.takes_conditions) return header;

  const std::vector<int> below = instructions_in(node);
  std::set<std::string> written;
  for (const int index : below) written.insert(context_.kernel.instructions[static_cast<size_t>(index)].target.name);
  const std::vector<Expr> candidates = conditions_of(below.front());
  for (const Expr& condition : candidates) {
    const auto has_it = [&](int index) {
      return std::ranges::any_of(conditions_of(index), [&](const Expr& c) { return same_expression(c, condition); });
    };
    if (!std::ranges::all_of(below, has_it) || reads_any(condition, written)) continue;
    // It must be known where the loop begins: no inames of loops inside.
    if (!condition_bound(condition, iname) || mentions_inner(condition, node)) continue;
    // A check may move to where the loop begins only if nothing is tested before it.
    const loop::Instruction& first = context_.kernel.instructions[static_cast<size_t>(below.front())];
    if (has_check(condition) && (header.may_be_empty || !same_expression(condition, conjuncts(*first.condition)[0])))
      continue;
    header.bounded_by_data = header.bounded_by_data || reads_tensor(condition);
    header.may_be_empty = true;
    for (const int index : below)
      std::erase_if(conditions_of(index), [&](const Expr& c) { return same_expression(c, condition); });
    header.conditions.push_back(condition);
  }
  return header;
}

}  // namespace megalith::codegen
