// split_iname, chunk_iname, split_reduction
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/domain_text.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// Inside of another reduction it depends on inames that the part's instruction is not within.
void check_stands_alone(const Kernel& kernel, const Instruction& instruction, const Expr& reduce) {
  std::vector<std::string> bound = instruction.within;
  Expr copy = reduce;
  for_each_expression(copy, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::reduce) bound.insert(bound.end(), expr.inames.begin(), expr.inames.end());
  });
  for_each_expression(copy, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::name && has_iname(kernel, expr.name) && !is_among(bound, expr.name))
      refuse(kernel, "{} cannot be split: it stands inside of a reduction over {}", print(reduce), expr.name);
  });
}

void check_splits(const Kernel& kernel, const std::vector<Split>& splits) {
  const std::vector<std::string> inames = kernel.inames();
  const std::set<std::string> known(inames.begin(), inames.end());
  const std::set<std::string> taken = words_of(kernel);
  std::set<std::string> named;
  for (const auto& [iname, factor, outer, inner] : splits) {
    if (!known.contains(iname)) check_has_iname(kernel, iname);
    if (!named.insert(iname).second) refuse(kernel, "\"{}\" is split twice at once", iname);
    for (const std::string& name : {outer, inner}) {
      check_is_name(kernel, name);
      if (taken.contains(name)) check_is_free(kernel, name);
    }
    if (outer == inner) refuse(kernel, "\"{}\" cannot be outer and inner iname of \"{}\"", outer, iname);
    for (const std::string& name : {outer, inner})
      if (!named.insert(name).second) refuse(kernel, "the name \"{}\" is taken", name);
    if (factor < 1) refuse(kernel, "\"{}\" is split by {}, want at least 1", iname, factor);
  }
}

// An argmax over an iname that is split runs over both afterwards, if it may.
Kernel split(const Kernel& kernel, const std::vector<Split>& splits, bool may_be_argmax) {
  check_splits(kernel, splits);
  Kernel result = kernel;
  std::map<std::string, const Split*> by_iname;
  std::map<std::string, std::string> texts;
  std::map<std::string, Expr> values;
  for (const Split& one : splits) {
    by_iname[one.iname] = &one;
    texts[one.iname] = fmt::format("{} * {} + {}", one.factor, one.outer, one.inner);
    values[one.iname] =
        make_call("+", {make_call("*", {make_integer(one.factor), make_name(one.outer)}), make_name(one.inner)});
  }
  const auto split_in = [&](std::vector<std::string>& names) {
    std::vector<std::string> list;
    for (const std::string& name : names)
      if (const auto found = by_iname.find(name); found != by_iname.end()) {
        list.push_back(found->second->outer);
        list.push_back(found->second->inner);
      } else {
        list.push_back(name);
      }
    names = std::move(list);
  };
  for (std::string& text : result.domains) {
    DomainText domain = read_domain(text, kernel.name);
    const std::vector<std::string> listed = domain.inames;
    split_in(domain.inames);
    domain.body = replace_names(kernel, domain.body, texts);
    for (const std::string& iname : listed) {
      const auto found = by_iname.find(iname);
      if (found == by_iname.end()) continue;
      const bool is_union = domain.body.find(" or ") != std::string::npos;
      if (!domain.body.empty()) domain.body = fmt::format("{} and ", is_union ? "(" + domain.body + ")" : domain.body);
      domain.body += fmt::format("0 <= {} < {}", found->second->inner, found->second->factor);
    }
    text = domain.text();
  }
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::reduce) {
      if (expr.reduce == ReduceOp::argmax && by_iname.contains(expr.inames[0]) && !may_be_argmax)
        refuse(kernel, "{} gives a value of \"{}\", which would be lost: it cannot be split", print(expr),
               expr.inames[0]);
      split_in(expr.inames);
    } else if (expr.kind == Expr::Kind::name) {
      if (const auto value = values.find(expr.name); value != values.end()) expr = value->second;
    }
  });
  for (Instruction& instruction : result.instructions) split_in(instruction.within);
  split_in(result.order);
  for (const Split& one : splits)
    if (const auto tag = result.tags.find(one.iname); tag != result.tags.end()) {
      result.tags[one.outer] = tag->second;  // a task is what one value of the outer iname stands for
      result.tags.erase(one.iname);
    }
  return finished(std::move(result));
}

}  // namespace

Kernel split_iname(const Kernel& kernel, const std::string& iname, int64_t factor, const std::string& outer,
                   const std::string& inner) {
  return split(kernel, {{iname, factor, outer, inner}}, false);
}

Kernel split_inames(const Kernel& kernel, const std::vector<Split>& splits) { return split(kernel, splits, false); }

Kernel split_with_argmax(const Kernel& kernel, const std::string& iname, int64_t factor, const std::string& outer,
                         const std::string& inner) {
  return split(kernel, {{iname, factor, outer, inner}}, true);
}

Kernel chunk_iname(const Kernel& kernel, const std::string& iname, int64_t count, const std::string& outer,
                   const std::string& inner) {
  check_has_iname(kernel, iname);
  if (count < 1) refuse(kernel, "\"{}\" is cut into {} chunks, want at least 1", iname, count);
  const isl::set values = Domains(kernel).over({iname});
  const isl::val most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
  if (!most.is_int() || isl_val_is_nonneg(most.get()) != isl_bool_true)
    refuse(kernel, "how many values \"{}\" takes is no number: fix its size, or split it by a factor", iname);
  return split_iname(kernel, iname, isl_val_get_num_si(most.get()) / count + 1, outer, inner);
}

Kernel split_reduction(const Kernel& kernel, const std::vector<std::string>& outer, const std::string& part) {
  if (outer.empty()) refuse(kernel, "no inames are given that the reduction is to be split by");
  for (const std::string& iname : outer) check_has_iname(kernel, iname);
  check_is_free(kernel, part);
  Kernel result = kernel;
  int found = 0;
  Instruction first;
  for (size_t i = 0; i < result.instructions.size(); ++i) {
    Instruction& instruction = result.instructions[i];
    for_each_expression(instruction, [&](Expr& expr) {
      const auto is_reduced = [&](const std::string& iname) { return is_among(expr.inames, iname); };
      if (expr.kind != Expr::Kind::reduce || !std::ranges::all_of(outer, is_reduced)) return;
      if (expr.reduce == ReduceOp::argmax) refuse(kernel, "{} cannot be split: an argmax is no sum", print(expr));
      if (expr.inames.size() == outer.size()) refuse(kernel, "{} runs over nothing else", print(expr));
      if (++found > 1) refuse(kernel, "two reductions run over {}: rename one's", fmt::join(outer, ", "));
      check_stands_alone(kernel, instruction, expr);
      Expr inner = expr;
      std::erase_if(inner.inames, [&](const std::string& iname) { return is_among(outer, iname); });
      Expr read;
      read.kind = Expr::Kind::subscript;
      read.name = part;
      for (const std::string& iname : kernel.inames())
        if (is_among(instruction.within, iname) || is_among(outer, iname)) {
          read.args.push_back(make_name(iname));
          first.within.push_back(iname);
        }
      first.target = read;
      first.value = std::move(inner);
      first.depends_on = instruction.depends_on;
      std::erase_if(expr.inames, [&](const std::string& iname) { return !is_among(outer, iname); });
      expr.args = {std::move(read)};
    });
    if (found == 1 && first.id.empty()) {
      std::set<std::string> ids;
      for (const Instruction& other : kernel.instructions) ids.insert(other.id);
      first.id = part;
      while (ids.contains(first.id)) first.id += "_";
      instruction.depends_on.push_back(first.id);
      first.condition = instruction.condition;
      insert_instructions(result, i, {first});
      ++i;
    }
  }
  if (found == 0) refuse(kernel, "no reduction runs over {} and more", fmt::join(outer, ", "));
  result.tensors.push_back({.name = part, .role = Role::temporary, .dtype = {}, .shape = {}, .shape_known = false});
  return finished(std::move(result));
}

}  // namespace megalith::loop
