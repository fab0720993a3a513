// prioritise, move_instruction, fuse_loops, duplicate_inames
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/domain_text.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

size_t place_of(const Kernel& kernel, const std::string& id) {
  const auto found = std::ranges::find(kernel.instructions, id, &Instruction::id);
  if (found == kernel.instructions.end()) refuse(kernel, "there is no instruction \"{}\"", id);
  return static_cast<size_t>(found - kernel.instructions.begin());
}

bool runs_over(const Expr& expr, const std::set<std::string>& inames) {
  if (expr.kind == Expr::Kind::reduce &&
      std::ranges::any_of(expr.inames, [&](const std::string& iname) { return inames.contains(iname); }))
    return true;
  return std::ranges::any_of(expr.args, [&](const Expr& arg) { return runs_over(arg, inames); });
}

// Domains of their own for new names of some inames.
void add_copies(Kernel& kernel, const std::map<std::string, std::string>& copies) {
  std::map<std::string, std::string> texts;
  for (const auto& [iname, copy] : copies) texts[iname] = copy;
  for (const std::string& text : std::vector(kernel.domains)) {
    DomainText domain = read_domain(text, kernel.name);
    std::vector<std::string> listed;
    for (const std::string& iname : domain.inames)
      if (const auto copy = copies.find(iname); copy != copies.end()) listed.push_back(copy->second);
    if (listed.empty()) continue;
    domain.inames = listed;
    domain.body = replace_names(kernel, domain.body, texts);
    kernel.domains.push_back(domain.text());
  }
}

}  // namespace

Kernel prioritise(const Kernel& kernel, const std::vector<std::string>& inames) {
  std::set<std::string> named;
  for (const std::string& iname : inames) {
    check_has_iname(kernel, iname);
    if (!named.insert(iname).second) refuse(kernel, "\"{}\" is named twice", iname);
  }
  Kernel result = kernel;
  result.order = kernel.inames();
  size_t next = 0;
  for (std::string& iname : result.order)
    if (named.contains(iname)) iname = inames[next++];
  result = finished(std::move(result));
  check_order_kept(kernel, result, {}, "keep the loops in their order, or duplicate inames of one of the two");
  return result;
}

Kernel move_instruction(const Kernel& kernel, const std::string& id, const std::string& before) {
  Kernel result = kernel;
  const size_t from = place_of(kernel, id), to = place_of(kernel, before);
  const Instruction moved = result.instructions[from];
  erase_instruction(result, from);
  insert_instructions(result, to > from ? to - 1 : to, {moved});
  result = finished(std::move(result));
  check_order_kept(kernel, result, {}, "leave it behind what it waits for");
  return result;
}

Kernel fuse_loops(const Kernel& kernel, const std::string& iname, const std::string& onto) {
  Kernel result = unify_inames(kernel, iname, onto);
  PointMaps maps;
  for (size_t i = 0; i < kernel.instructions.size(); ++i)
    maps[kernel.instructions[i].id] =
        points_by_name(kernel.instructions[i].within, result.instructions[i].within, {{iname, onto}});
  check_order_kept(kernel, result, maps,
                   fmt::format("\"{}\" and \"{}\" must stay loops of their own, or one be shifted first", iname, onto));
  return result;
}

Kernel duplicate_inames(const Kernel& kernel, const std::map<std::string, std::string>& copies,
                        const std::set<std::string>& ids) {
  if (copies.empty()) refuse(kernel, "no iname is given to duplicate");
  std::set<std::string> inames;
  for (const auto& [iname, copy] : copies) {
    check_has_iname(kernel, iname);
    check_is_free(kernel, copy);
    inames.insert(iname);
  }
  for (const std::string& id : ids) place_of(kernel, id);
  Kernel result = kernel;
  add_copies(result, copies);
  result.order = kernel.inames();
  for (const auto& [iname, copy] : copies) result.order.insert(std::ranges::find(result.order, iname) + 1, copy);
  PointMaps maps;
  for (Instruction& instruction : result.instructions) {
    if (!ids.contains(instruction.id)) continue;
    const bool concerns = std::ranges::any_of(inames, [&](const std::string& i) {
      return is_among(instruction.within, i) || runs_over(instruction.value, {i});
    });
    if (!concerns)
      refuse(kernel, "the instruction {} has nothing to do with {}", instruction.id, fmt::join(inames, ", "));
    // What else it runs over may depend on the inames that get other names.
    for (const std::string& text : kernel.domains) {
      const DomainText domain = read_domain(text, kernel.name);
      for (const std::string& other : domain.inames)
        for (const std::string& mentioned : domain.names)
          if (inames.contains(mentioned) && !inames.contains(other) &&
              (is_among(instruction.within, other) || runs_over(instruction.value, {other})))
            refuse(kernel, "the values of \"{}\" depend on \"{}\": duplicate both in {}", other, mentioned,
                   instruction.id);
    }
    std::vector<std::string> before = instruction.within;
    for (std::string& iname : instruction.within)
      if (const auto copy = copies.find(iname); copy != copies.end()) iname = copy->second;
    for_each_expression(instruction, [&](Expr& expr) {
      if (expr.kind == Expr::Kind::name)
        if (const auto copy = copies.find(expr.name); copy != copies.end()) expr.name = copy->second;
      if (expr.kind == Expr::Kind::reduce)
        for (std::string& iname : expr.inames)
          if (const auto copy = copies.find(iname); copy != copies.end()) iname = copy->second;
    });
    maps[instruction.id] = points_by_name(before, instruction.within, copies);
  }
  for (const auto& [iname, copy] : copies)
    if (const auto tag = kernel.tags.find(iname); tag != kernel.tags.end()) result.tags[copy] = tag->second;
  result = finished(std::move(result));
  check_order_kept(kernel, result, maps, fmt::format("{} of the two must share its loop", fmt::join(inames, ", ")));
  return result;
}

Kernel duplicate_in_reduction(const Kernel& kernel, const std::map<std::string, std::string>& copies,
                              size_t instruction, size_t which) {
  Kernel result = kernel;
  add_copies(result, copies);
  result.order = kernel.inames();
  Instruction& changed = result.instructions[instruction];
  const auto copy_tag = [](std::map<std::string, InameTag>& tags, const std::string& iname, const std::string& copy) {
    if (const auto tag = tags.find(iname); tag != tags.end()) tags[copy] = tag->second;
  };
  for (const auto& [iname, copy] : copies) {
    result.order.insert(std::ranges::find(result.order, iname) + 1, copy);
    copy_tag(result.tags, iname, copy);
    copy_tag(changed.tags, iname, copy);
  }
  Expr* reduction = nullptr;
  size_t number = 0;
  for_each_expression(changed, [&](Expr& expr) {
    if (number++ == which) reduction = &expr;
  });
  const auto rename = [&](std::string& name) {
    if (const auto copy = copies.find(name); copy != copies.end()) name = copy->second;
  };
  for_each_expression(*reduction, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::name) rename(expr.name);
    if (expr.kind == Expr::Kind::reduce) std::ranges::for_each(expr.inames, rename);
  });
  for (const std::string& text : kernel.domains) {
    const DomainText domain = read_domain(text, kernel.name);
    for (const std::string& other : domain.inames)
      for (const auto& [iname, copy] : copies)
        if (is_among(domain.names, iname) && runs_over(*reduction, {other}))
          refuse(kernel, "the values of \"{}\" depend on \"{}\": duplicate both in {}", other, iname, changed.id);
  }
  return finished(std::move(result));
}

}  // namespace megalith::loop
