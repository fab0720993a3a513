// rename, unify_inames, tag_iname
#include <isl/set.h>

#include <algorithm>
#include <set>

#include "megalith/loop/access.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

void replace_in(std::vector<std::string>& names, const std::string& from, const std::string& to) {
  std::ranges::replace(names, from, to);
}

// In domain texts and assumptions; `drops`: a tuple does not list `to`, which another one does.
void rename_in_domains(Kernel& kernel, const std::string& from, const std::string& to, bool drops) {
  for (std::string& text : kernel.domains) {
    DomainText domain = read_domain(text, kernel.name);
    if (drops)
      std::erase(domain.inames, from);
    else
      replace_in(domain.inames, from, to);
    domain.body = replace_names(kernel, domain.body, {{from, to}});
    text = domain.text();
  }
  kernel.assumptions = replace_names(kernel, kernel.assumptions, {{from, to}});
  if (drops)
    std::erase(kernel.order, from);
  else
    replace_in(kernel.order, from, to);
}

void rename_iname_uses(Kernel& kernel, const std::string& from, const std::string& to) {
  for (Instruction& instruction : kernel.instructions) replace_in(instruction.within, from, to);
  for_each_expression(kernel, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::reduce) replace_in(expr.inames, from, to);
    if (expr.kind == Expr::Kind::name && expr.name == from) expr.name = to;
  });
}

// Each expression is evaluated at as many points as before. What both inames take together says little of that: { [k] : 0 <= k
// <= j } depends on j, and would be lost.
void check_same_points(const Kernel& before, const Kernel& after, const std::string& iname, const std::string& onto) {
  const Domains domains(before), left(after);
  for (const Instruction& instruction : before.instructions) {
    std::set<std::vector<std::string>> seen;
    visit_expressions(instruction, [&](const Expr&, const Place& place) {
      if (!seen.insert(place.inames).second) return;
      std::vector<std::string> names = place.inames;
      std::ranges::replace(names, iname, onto);
      isl::set points = project_dimensions(domains.over(place.inames), place.inames);
      for (size_t i = 0; i < names.size(); ++i)
        points = isl::manage(
            isl_set_set_dim_name(points.release(), isl_dim_set, static_cast<unsigned>(i), names[i].c_str()));
      if (!points.is_equal(project_dimensions(left.over(names), names)))
        refuse(before, "\"{}\" takes other values than \"{}\" in {}, as what else it is within decides", iname, onto,
               instruction.id);
    });
  }
}

}  // namespace

Kernel rename(const Kernel& kernel, const std::string& from, const std::string& to) {
  if (!names_of(kernel).contains(from)) refuse(kernel, "there is no \"{}\" to rename", from);
  check_is_free(kernel, to);
  Kernel result = kernel;
  rename_in_domains(result, from, to, false);
  rename_iname_uses(result, from, to);
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && expr.name == from) expr.name = to;
  });
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::call && expr.name == from && kernel.find_rule(from)) expr.name = to;
  });
  for (Rule& rule : result.rules) {
    if (rule.name == from) rule.name = to;
    replace_in(rule.arguments, from, to);
  }
  for (Parameter& parameter : result.parameters)
    if (parameter.name == from) parameter.name = to;
  for (Attribute& attribute : result.attributes)
    if (attribute.name == from) attribute.name = to;
  for (TensorArgument& tensor : result.tensors)
    if (tensor.name == from) tensor.name = to;
  const auto rename_tag = [&](std::map<std::string, InameTag>& tags) {
    if (auto tag = tags.extract(from)) {
      tag.key() = to;
      tags.insert(std::move(tag));
    }
  };
  rename_tag(result.tags);
  for (Instruction& instruction : result.instructions) rename_tag(instruction.tags);
  return finished(std::move(result));
}

Kernel unify_inames(const Kernel& kernel, const std::string& iname, const std::string& onto) {
  check_has_iname(kernel, iname);
  check_has_iname(kernel, onto);
  if (iname == onto) refuse(kernel, "\"{}\" is itself already", iname);
  const Domains domains(kernel);
  const isl::set own = domains.over({iname}), values = domains.over({onto});
  const isl::set other = isl::manage(isl_set_set_dim_name(values.copy(), isl_dim_set, 0, iname.c_str()));
  if (!own.is_equal(other))
    refuse(kernel, "\"{}\" takes other values than \"{}\": {} and {}", iname, onto, constraints_of(own),
           constraints_of(other));
  for (const Instruction& instruction : kernel.instructions) {
    const auto is_within = [&](const std::string& name) {
      return std::ranges::find(instruction.within, name) != instruction.within.end();
    };
    if (is_within(iname) && is_within(onto))
      refuse(kernel, "the instruction {} is within both \"{}\" and \"{}\"", instruction.id, iname, onto);
    visit_expressions(instruction, [&](const Expr&, const Place& place) {
      if (is_among(place.inames, iname) && is_among(place.inames, onto))
        refuse(kernel, "a reduction in {} runs over \"{}\" where \"{}\" has a value", instruction.id, iname, onto);
    });
  }
  Kernel result = kernel;
  rename_in_domains(result, iname, onto, true);
  std::erase_if(result.domains, [&](const std::string& text) { return read_domain(text, kernel.name).inames.empty(); });
  rename_iname_uses(result, iname, onto);
  result.tags.erase(iname);
  result = finished(std::move(result));
  check_same_points(kernel, result, iname, onto);
  return result;
}

Kernel remove_unused(const Kernel& kernel) { return finished(kernel); }

Kernel tag_iname(const Kernel& kernel, const std::string& iname, InameTag tag) {
  check_has_iname(kernel, iname);
  Kernel result = kernel;
  result.tags[iname] = tag;
  return result;
}

}  // namespace megalith::loop
