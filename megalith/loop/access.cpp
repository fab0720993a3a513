#include "megalith/loop/access.h"

#include <algorithm>

#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

using Visit = std::function<void(const Expr&, const Place&)>;

// child(argument, place) for each argument of `expr`, which stands at `place`, in the order of evaluation.
template <class AnyExpr, class Child>
void for_arguments(AnyExpr& expr, const Place& place, Child child) {
  Place inner = place;
  inner.is_target = false;
  if (expr.kind == Expr::Kind::subscript) inner.in_subscript = true;
  auto guarded = [&](AnyExpr& argument, bool holds) {
    Place within = inner;
    within.guards.push_back({expr.kind == Expr::Kind::reduce ? &expr.args[1] : &expr.args[0], holds});
    child(argument, within);
  };
  if (expr.kind == Expr::Kind::reduce) {
    inner.inames.insert(inner.inames.end(), expr.inames.begin(), expr.inames.end());
    if (expr.args.size() == 2) {
      child(expr.args[1], inner);
      guarded(expr.args[0], true);
      return;
    }
  }
  if (expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or")) {
    child(expr.args[0], inner);
    guarded(expr.args[1], expr.name != "or");
    if (expr.name == "if") guarded(expr.args[2], false);
    return;
  }
  for (AnyExpr& argument : expr.args) child(argument, inner);
}

void walk(const Expr& expr, const Place& place, const Visit& visit) {
  visit(expr, place);
  for_arguments(expr, place, [&](const Expr& argument, const Place& inner) { walk(argument, inner, visit); });
}

void rewrite_one(Expr& expr, const Place& place, const std::function<void(Expr&, const Place&)>& rewrite) {
  for_arguments(expr, place, [&](Expr& argument, const Place& inner) { rewrite_one(argument, inner, rewrite); });
  rewrite(expr, place);
}

// each(expression, place) for condition, value and target, in the order of evaluation.
template <class AnyInstruction, class Each>
void for_expressions(AnyInstruction& instruction, Each each) {
  Place place;
  place.inames = instruction.within;
  if (instruction.condition) {
    each(*instruction.condition, place);
    place.guards.push_back({&*instruction.condition, true});
  }
  each(instruction.value, place);
  place.is_target = place.in_target = true;
  each(instruction.target, place);
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
  for_expressions(instruction, [&](const Expr& expr, const Place& place) { walk(expr, place, visit); });
}

void rewrite_expressions(Instruction& instruction, const std::function<void(Expr&, const Place&)>& rewrite) {
  for_expressions(instruction, [&](Expr& expr, const Place& place) { rewrite_one(expr, place, rewrite); });
}

isl::set place_domain(const Domains& domains, const Place& place) {
  isl::set result = domains.over(place.inames);
  for (const Guard& guard : place.guards) result = restricted(result, *guard.condition, guard.holds);
  return result;
}

std::string place_question(const Domains& domains, const Place& place) {
  std::string question = domains.question(place.inames);
  for (const std::string& iname : place.inames) question += " " + iname;
  for (const Guard& guard : place.guards) question += (guard.holds ? "; if " : "; if not ") + print(*guard.condition);
  return question;
}

bool uses_iname(const Instruction& instruction, const std::string& iname) {
  bool is_used = std::ranges::find(instruction.within, iname) != instruction.within.end();
  visit_expressions(instruction, [&](const Expr& expr, const Place&) {
    is_used |= expr.kind == Expr::Kind::reduce && std::ranges::find(expr.inames, iname) != expr.inames.end();
  });
  return is_used;
}

std::vector<std::string> tensors_read(const Expr& expr) {
  std::vector<std::string> names;
  collect_tensors(expr, names);
  return names;
}

}  // namespace megalith::loop
