// extract_rule, rule_of_temporary, expand_rules, temporary_of_rule
#include "megalith/loop/rules.h"

#include <algorithm>

#include "megalith/loop/access.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/definition.h"
#include "megalith/loop/transform/reduction.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// Whether `expr` is the template with expressions in place of its arguments; those are put into `values`.
bool matches(const Expr& pattern, const Expr& expr, const std::vector<std::string>& arguments,
             std::map<std::string, Expr>& values) {
  if (pattern.kind == Expr::Kind::name && is_among(arguments, pattern.name)) {
    const auto [found, is_new] = values.try_emplace(pattern.name, expr);
    return is_new || same_expression(found->second, expr);
  }
  if (pattern.kind != expr.kind || pattern.number != expr.number || pattern.is_integer != expr.is_integer ||
      pattern.name != expr.name || pattern.reduce != expr.reduce || pattern.inames != expr.inames ||
      pattern.args.size() != expr.args.size())
    return false;
  for (size_t i = 0; i < pattern.args.size(); ++i)
    if (!matches(pattern.args[i], expr.args[i], arguments, values)) return false;
  return true;
}

// Outer matches first; what stands for an argument is looked at, too.
int put_calls(Expr& expr, const Rule& rule) {
  int count = 0;
  std::map<std::string, Expr> values;
  if (matches(rule.body, expr, rule.arguments, values)) {
    std::vector<Expr> args;
    for (const std::string& argument : rule.arguments) args.push_back(values.at(argument));
    const DType dtype = expr.dtype;
    expr = make_call(rule.name, std::move(args));
    expr.dtype = dtype;
    ++count;
  }
  for (Expr& arg : expr.args) count += put_calls(arg, rule);
  return count;
}

void check_arguments(const Kernel& kernel, const std::vector<std::string>& arguments, const std::string& name) {
  std::set<std::string> names = {name};
  for (const std::string& argument : arguments) {
    check_is_free(kernel, argument);
    if (!names.insert(argument).second) refuse(kernel, "\"{}\" stands twice in the rule {}", argument, name);
  }
}

// The sum takes the same values wherever it stands.
void check_reductions_stand_anywhere(const Kernel& kernel, const Instruction& definition) {
  const Domains domains(kernel);
  visit_expressions(definition, [&](const Expr& expr, const Place&) {
    if (expr.kind != Expr::Kind::reduce) return;
    std::vector<std::string> both = definition.within;
    both.insert(both.end(), expr.inames.begin(), expr.inames.end());
    isl_set* apart =
        isl_set_flat_product(project_dimensions(domains.over(definition.within), definition.within).release(),
                             project_dimensions(domains.over(expr.inames), expr.inames).release());
    const isl::set together = project_dimensions(domains.over(both), both);
    apart = isl_set_reset_space(apart, together.space().release());
    if (!isl::manage(apart).is_equal(together))
      refuse(kernel, "which values {} runs over depends on where it stands: precompute or substitute it", print(expr));
  });
}

}  // namespace

Kernel extract_rule(const Kernel& kernel, const std::string& name, const std::vector<std::string>& arguments,
                    const Expr& pattern) {
  check_is_free(kernel, name);
  check_arguments(kernel, arguments, name);
  for (const std::string& argument : arguments)
    if (!mentions(pattern, argument)) refuse(kernel, "the rule {} does not use its argument \"{}\"", name, argument);
  if (pattern.kind == Expr::Kind::name || pattern.kind == Expr::Kind::number)
    refuse(kernel, "{} is no expression that a rule could stand for", print(pattern));
  Kernel result = kernel;
  const Rule rule{name, arguments, pattern};
  int count = 0;
  for (Instruction& instruction : result.instructions) {
    count += put_calls(instruction.value, rule);
    if (instruction.condition) count += put_calls(*instruction.condition, rule);
  }
  if (count == 0) refuse(kernel, "nothing in the kernel is of the form {}", print(pattern));
  result.rules.push_back(rule);
  return finished(std::move(result));
}

Kernel rule_of_temporary(const Kernel& kernel, const std::string& temporary) {
  const Kernel plain = without_rules(kernel);
  const Instruction definition = plain.instructions[find_definition(plain, temporary)];
  check_reductions_stand_anywhere(plain, definition);
  Kernel result = kernel;
  const auto at = std::ranges::find(result.instructions, definition.id, &Instruction::id) - result.instructions.begin();
  Rule rule{temporary, {}, result.instructions[static_cast<size_t>(at)].value};
  std::map<std::string, Expr> names;
  std::set<std::string> taken;
  for (const Expr& iname : definition.target.args) {
    rule.arguments.push_back(free_name(kernel, iname.name + "_at", taken));
    taken.insert(rule.arguments.back());
    names[iname.name] = make_name(rule.arguments.back());
  }
  replace_names(rule.body, names);
  rule.body = rounded_as(*tensor_of(kernel, temporary).dtype, std::move(rule.body), definition.value.dtype);
  erase_instruction(result, static_cast<size_t>(at));
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && expr.name == temporary) expr.kind = Expr::Kind::call;
  });
  inherit_dependences(result, definition);
  std::erase_if(result.tensors, [&](const TensorArgument& t) { return t.name == temporary; });
  result.rules.push_back(std::move(rule));
  return finished(std::move(result));
}

Kernel expand_rules(const Kernel& kernel, const std::string& name) {
  if (!kernel.find_rule(name)) refuse(kernel, "there is no rule \"{}\"", name);
  Kernel only = kernel;
  std::erase_if(only.rules, [&](const Rule& rule) { return rule.name != name; });
  Kernel result = kernel;
  std::erase_if(result.rules, [&](const Rule& rule) { return rule.name == name; });
  for (Rule& rule : result.rules) rule.body = without_rules(only, rule.body);
  for (Instruction& instruction : result.instructions) {
    instruction.target = without_rules(only, instruction.target);
    instruction.value = without_rules(only, instruction.value);
    if (instruction.condition) instruction.condition = without_rules(only, *instruction.condition);
  }
  return finished(std::move(result));
}

Kernel temporary_of_rule(const Kernel& kernel, const std::string& name) {
  const Rule* rule = kernel.find_rule(name);
  if (!rule) refuse(kernel, "there is no rule \"{}\"", name);
  if (rule->arguments.empty()) refuse(kernel, "the rule {} has no arguments that could be subscripts", name);
  // Others than this one are in its way.
  Kernel result = kernel;
  for (const Rule& other : kernel.rules)
    if (other.name != name) result = expand_rules(result, other.name);
  const Rule own = *result.find_rule(name);
  result.rules.clear();
  std::optional<size_t> first;
  for (size_t i = 0; i < result.instructions.size(); ++i)
    for_each_expression(result.instructions[i], [&](Expr& expr) {
      if (expr.kind != Expr::Kind::call || expr.name != name) return;
      expr.kind = Expr::Kind::subscript;
      if (!first) first = i;
    });
  if (!first) refuse(kernel, "nothing calls the rule \"{}\"", name);
  const std::vector<std::string> order = result.inames();
  for (const std::string& iname : order)
    if (mentions(own.body, iname)) {
      bool is_bound = false;
      Expr body = own.body;
      for_each_expression(
          body, [&](Expr& expr) { is_bound |= expr.kind == Expr::Kind::reduce && is_among(expr.inames, iname); });
      if (!is_bound)
        refuse(kernel, "the rule {} uses the iname \"{}\": give it an argument for that, so that it is a subscript",
               name, iname);
    }
  const std::vector<Expr> shape = inferred_shape(result, name);
  Instruction definition;
  definition.id = free_id(result, name);
  definition.target.kind = Expr::Kind::subscript;
  definition.target.name = name;
  definition.value = own.body;
  std::map<std::string, Expr> names;
  std::vector<std::string> inames, bounds;
  for (size_t d = 0; d < own.arguments.size(); ++d) {
    inames.push_back(free_name(result, own.arguments[d], {inames.begin(), inames.end()}));
    names[own.arguments[d]] = make_name(inames.back());
    bounds.push_back(fmt::format("0 <= {} < {}", inames.back(), isl_text_of(shape[d])));
    definition.target.args.push_back(make_name(inames.back()));
  }
  replace_names(definition.value, names);
  definition.within = inames;
  add_domain(result, fmt::format("{{ [{}] : {} }}", fmt::join(inames, ", "), fmt::join(bounds, " and ")));
  insert_instructions(result, *first, {std::move(definition)});
  result.tensors.push_back({.name = name, .role = Role::temporary, .dtype = {}, .shape = shape, .shape_known = true});
  return finished(std::move(result));
}

}  // namespace megalith::loop
