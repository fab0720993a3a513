#include "megalith/loop/access.h"

#include <algorithm>

namespace megalith::loop {

namespace {

using Visit = std::function<void(const Expr&, const Place&)>;

void walk(const Expr& expr, const Place& place, const Visit& visit);

void walk_guarded(const Expr& expr, Place place, const Expr& condition, bool holds, const Visit& visit) {
  place.guards.push_back({&condition, holds});
  walk(expr, place, visit);
}

void walk(const Expr& expr, const Place& place, const Visit& visit) {
  visit(expr, place);
  Place inner = place;
  inner.is_target = false;
  if (expr.kind == Expr::Kind::subscript) inner.in_subscript = true;
  if (expr.kind == Expr::Kind::reduce) {
    inner.inames.insert(inner.inames.end(), expr.inames.begin(), expr.inames.end());
    if (expr.args.size() == 2) {
      walk(expr.args[1], inner, visit);
      walk_guarded(expr.args[0], inner, expr.args[1], true, visit);
      return;
    }
  }
  if (expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or")) {
    walk(expr.args[0], inner, visit);
    walk_guarded(expr.args[1], inner, expr.args[0], expr.name != "or", visit);
    if (expr.name == "if") walk_guarded(expr.args[2], inner, expr.args[0], false, visit);
    return;
  }
  for (const Expr& arg : expr.args) walk(arg, inner, visit);
}

// What is affine of `condition` being `holds`.
isl::set restricted(const isl::set& set, const Expr& condition, bool holds) {
  if (condition.kind == Expr::Kind::call && condition.name == (holds ? "and" : "or"))
    return restricted(restricted(set, condition.args[0], holds), condition.args[1], holds);
  if (condition.kind == Expr::Kind::call && condition.name == "not") return restricted(set, condition.args[0], !holds);
  const auto where = to_isl_set(set.space(), condition);
  if (!where) return set;
  return holds ? set.intersect(*where) : set.subtract(*where);
}

void collect_tensors(const Expr& expr, std::vector<std::string>& names) {
  if (expr.kind == Expr::Kind::subscript && std::ranges::find(names, expr.name) == names.end())
    names.push_back(expr.name);
  for (const Expr& arg : expr.args) collect_tensors(arg, names);
}

}  // namespace

void visit_expressions(const Instruction& instruction, const Visit& visit) {
  Place place;
  place.inames = instruction.within;
  if (instruction.condition) {
    walk(*instruction.condition, place, visit);
    place.guards.push_back({&*instruction.condition, true});
  }
  walk(instruction.value, place, visit);
  place.is_target = true;
  walk(instruction.target, place, visit);
}

isl::set place_domain(const Domains& domains, const Place& place) {
  isl::set result = domains.over(place.inames);
  for (const Guard& guard : place.guards) result = restricted(result, *guard.condition, guard.holds);
  return result;
}

std::vector<std::string> tensors_read(const Expr& expr) {
  std::vector<std::string> names;
  collect_tensors(expr, names);
  return names;
}

}  // namespace megalith::loop
