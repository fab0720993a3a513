// map_domain, join_inames: inames become affine forms of others
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/affine.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

Expr expression_of(const QuasiAffine& form, const std::vector<std::string>& names) {
  Expr sum = make_integer(form.constant);
  bool is_empty = form.constant == 0;
  for (const QuasiAffine::Term& term : form.terms) {
    Expr factor = term.variable >= 0
                      ? make_name(names[static_cast<size_t>(term.variable)])
                      : make_call("//", {expression_of(*term.numerator, names), make_integer(term.denominator)});
    const int64_t size = std::abs(term.coefficient);
    if (size != 1) factor = make_call("*", {make_integer(size), std::move(factor)});
    if (term.coefficient < 0)
      sum = is_empty ? make_call("neg", {factor}) : make_call("-", {std::move(sum), factor});
    else
      sum = is_empty ? factor : make_call("+", {std::move(sum), factor});
    is_empty = false;
  }
  return sum;
}

// Each old iname by the new ones.
using Inverse = std::map<std::string, Expr>;

// What the texts say that list some of `inames` stands in one afterwards, which lists `after` in their place, with `more`.
void map_domains(Kernel& kernel, const std::vector<std::string>& inames, const std::vector<std::string>& after,
                 const Inverse& inverse, const std::string& more) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, expr] : inverse) texts[name] = isl_text_of(expr);
  std::vector<std::string> domains, bodies;
  DomainText whole;
  whole.inames = after;
  for (const std::string& text : kernel.domains) {
    DomainText domain = read_domain(text, kernel.name);
    const bool lists = std::ranges::any_of(domain.inames, [&](const std::string& i) { return is_among(inames, i); });
    domain.body = replace_names(kernel, domain.body, texts);
    if (!lists) {
      domains.push_back(domain.text());
      continue;
    }
    for (const std::string& iname : domain.inames)
      if (!is_among(inames, iname)) whole.inames.push_back(iname);
    if (!domain.body.empty()) bodies.push_back(fmt::format("({})", domain.body));
  }
  if (!more.empty()) bodies.push_back(fmt::format("({})", more));
  whole.body = fmt::format("{}", fmt::join(bodies, " and "));
  domains.push_back(whole.text());
  kernel.domains = std::move(domains);
}

void check_all_or_none(const Kernel& kernel, const std::vector<std::string>& inames) {
  const auto check = [&](const std::string& where, const std::vector<std::string>& there) {
    const auto count = std::ranges::count_if(inames, [&](const std::string& iname) { return is_among(there, iname); });
    if (count != 0 && count != static_cast<std::ptrdiff_t>(inames.size()))
      refuse(kernel, "{} {} but not over all of {}: duplicate the inames there first", where, fmt::join(there, ", "),
             fmt::join(inames, ", "));
  };
  for (const Instruction& instruction : kernel.instructions) {
    check(fmt::format("the instruction {} runs over", instruction.id), instruction.within);
    Instruction copy = instruction;
    for_each_expression(copy, [&](Expr& expr) {
      if (expr.kind != Expr::Kind::reduce) return;
      check(fmt::format("{} runs over", print(expr)), expr.inames);
      if (expr.reduce == ReduceOp::argmax && is_among(inames, expr.inames[0]))
        refuse(kernel, "{} gives a value of \"{}\", which would be lost", print(expr), expr.inames[0]);
    });
  }
}

void replace_in_list(std::vector<std::string>& names, const std::vector<std::string>& before,
                     const std::vector<std::string>& after) {
  const auto first = std::ranges::find_if(names, [&](const std::string& name) { return is_among(before, name); });
  if (first == names.end()) return;
  const auto at = first - names.begin();
  std::erase_if(names, [&](const std::string& name) { return is_among(before, name); });
  names.insert(names.begin() + at, after.begin(), after.end());
}

// `forward`: the new inames by the old ones, as texts.
Kernel mapped(const Kernel& kernel, const std::vector<std::string>& before, const std::vector<std::string>& after,
              const Inverse& inverse, const std::string& image, const std::map<std::string, std::string>& forward,
              const std::string& hint) {
  check_all_or_none(kernel, before);
  Kernel result = kernel;
  result.order = kernel.inames();
  replace_in_list(result.order, before, after);
  map_domains(result, before, after, inverse, image);
  for (const std::string& iname : before) result.tags.erase(iname);
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::reduce) replace_in_list(expr.inames, before, after);
  });
  for (Instruction& instruction : result.instructions) {
    for (Expr* expr : {&instruction.target, &instruction.value}) replace_names(*expr, inverse);
    if (instruction.condition) replace_names(*instruction.condition, inverse);
    replace_in_list(instruction.within, before, after);
  }
  result = finished(std::move(result));
  PointMaps maps;
  std::vector<std::string> parameters;
  for (const Parameter& parameter : kernel.parameters) parameters.push_back(parameter.name);
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    std::vector<std::string> points;
    for (const std::string& iname : result.instructions[i].within) {
      const auto found = forward.find(iname);
      points.push_back(found == forward.end() ? iname : found->second);
    }
    maps[kernel.instructions[i].id] =
        isl::map(isl_context(), fmt::format("[{}] -> {{ [{}] -> [{}] }}", fmt::join(parameters, ", "),
                                            fmt::join(kernel.instructions[i].within, ", "), fmt::join(points, ", ")));
  }
  check_order_kept(kernel, result, maps, hint);
  return result;
}

}  // namespace

Kernel map_domain(const Kernel& kernel, const std::vector<std::string>& before, const std::vector<std::string>& after,
                  const std::vector<Expr>& values) {
  if (before.empty() || after.size() != values.size() || before.size() != after.size())
    refuse(kernel, "{} inames become {} of {} values: want as many of each", before.size(), after.size(),
           values.size());
  for (const std::string& iname : before) check_has_iname(kernel, iname);
  for (const std::string& iname : after) check_is_free(kernel, iname);
  for (const auto& names : {before, after})
    if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
      refuse(kernel, "an iname stands in [{}] twice", fmt::join(names, ", "));
  std::vector<std::string> texts, parameters;
  std::map<std::string, std::string> forward;
  for (size_t i = 0; i < after.size(); ++i) {
    if (!is_affine(kernel, values[i])) refuse(kernel, "{} = {} is not affine", after[i], print(values[i]));
    texts.push_back(print(values[i]));
    forward[after[i]] = texts.back();
  }
  for (const Parameter& parameter : kernel.parameters) parameters.push_back(parameter.name);
  const isl::map map(isl_context(), fmt::format("[{}] -> {{ [{}] -> [{}] }}", fmt::join(parameters, ", "),
                                                fmt::join(before, ", "), fmt::join(texts, ", ")));
  if (!map.is_bijective())
    refuse(kernel, "[{}] -> [{}] gives one point for several: want a bijection", fmt::join(before, ", "),
           fmt::join(texts, ", "));
  isl_map* reverse = isl_map_reverse(map.copy());
  for (size_t i = 0; i < after.size(); ++i)
    reverse = isl_map_set_dim_name(reverse, isl_dim_in, static_cast<unsigned>(i), after[i].c_str());
  const isl::map back = isl::manage(reverse);
  const isl::pw_multi_aff pieces = back.as_pw_multi_aff();
  Inverse inverse;
  const isl::set image = back.domain();
  const std::vector<std::string> names = variable_names(image);
  bool first = true;
  pieces.foreach_piece([&](const isl::set&, const isl::multi_aff& value) {
    if (!first) refuse(kernel, "the inverse of [{}] is not one affine form", fmt::join(texts, ", "));
    first = false;
    for (size_t i = 0; i < before.size(); ++i)
      inverse[before[i]] = expression_of(quasi_affine(value.at(static_cast<int>(i)), names), names);
  });
  return mapped(kernel, before, after, inverse, constraints_of(image), forward, "skew further, or map fewer inames");
}

Kernel join_inames(const Kernel& kernel, const std::string& outer, const std::string& inner,
                   const std::string& joined) {
  check_has_iname(kernel, outer);
  check_has_iname(kernel, inner);
  check_is_free(kernel, joined);
  if (outer == inner) refuse(kernel, "\"{}\" cannot be joined with itself", outer);
  const isl::set values = Domains(kernel).over({inner});
  const isl::val least = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                 most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
  if (!least.is_zero() || !most.is_int())
    refuse(kernel, "the length of \"{}\" is no number, or it does not start at 0: fix it, or join the other way round",
           inner);
  const int64_t length = isl_val_get_num_si(most.get()) + 1;
  const Inverse inverse = {{outer, make_call("//", {make_name(joined), make_integer(length)})},
                           {inner, make_call("mod", {make_name(joined), make_integer(length)})}};
  return mapped(kernel, {outer, inner}, {joined}, inverse, "",
                {{joined, fmt::format("{} * {} + {}", length, outer, inner)}},
                fmt::format("order {}, {} next to each other first", outer, inner));
}

}  // namespace megalith::loop
