// Loop bounds and guards as C text: the part of domain.h that code generators use.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/recall.h"

namespace megalith::loop {

namespace {

// combine(a, combine(b, c)), without repetitions.
std::string folded(const std::vector<std::string>& texts, const char* combine) {
  std::string result = texts.back();
  for (size_t i = texts.size() - 1; i-- > 0;) result = fmt::format("{}({}, {})", combine, texts[i], result);
  return result;
}

std::vector<std::string> bound_texts(const std::vector<QuasiAffine>& bounds, std::span<const std::string> names) {
  std::vector<std::string> texts;
  for (const QuasiAffine& bound : bounds) texts.push_back(bound.c_text(names));
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

// The bounds of one side; several alternatives become one entry.
std::vector<std::string> side_texts(const AffineRange& range, std::vector<QuasiAffine> AffineRange::Alternative::*side,
                                    const char* within, const char* across, std::span<const std::string> names) {
  if (range.alternatives.empty()) return {"0"};
  if (range.alternatives.size() == 1) return bound_texts(range.alternatives[0].*side, names);
  std::vector<std::string> all;
  for (const AffineRange::Alternative& alternative : range.alternatives)
    all.push_back(folded(bound_texts(alternative.*side, names), within));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return {folded(all, across)};
}

void collect_instructions(const NestNode& node, std::vector<int>& found) {
  if (node.instruction >= 0) found.push_back(node.instruction);
  for (const NestNode& child : node.body) collect_instructions(child, found);
}

}  // namespace

LoopBounds loop_bounds(const isl::set& domain, const std::string& iname, const std::vector<std::string>& outer) {
  std::vector<std::string> onto = outer;
  onto.push_back(iname);
  const isl::set projected = project_dimensions(domain, onto);
  LoopBounds bounds;
  const std::vector<std::string> names = variable_names(projected);
  const AffineRange range = last_dimension_range(projected, names, &bounds.implemented);
  bounds.lower = side_texts(range, &AffineRange::Alternative::lower, "max", "min", names);
  bounds.upper = side_texts(range, &AffineRange::Alternative::upper, "min", "max", names);
  return bounds;
}

LoopBounds iname_bounds(const Domains& domains, const std::string& iname) {
  isl_context();
  thread_local Recall<LoopBounds> known(4096);
  const std::string& question = domains.question({iname});
  if (const LoopBounds* bounds = known.find(question)) return *bounds;
  LoopBounds bounds = loop_bounds(domains.over({iname}), iname, {});
  known.keep(question, bounds);
  return bounds;
}

std::vector<std::string> guards(const isl::set& wanted_any_order, const isl::set& implemented) {
  const std::vector<std::string> names = variable_names(implemented);
  const auto num_parameters = isl_set_dim(implemented.get(), isl_dim_param);
  const isl::set wanted = project_dimensions(wanted_any_order, {names.begin() + num_parameters, names.end()});
  if (implemented.is_subset(wanted)) return {};
  const isl::set needed = wanted.gist(implemented).coalesce();
  const AffineSet set = affine_set(needed, names);
  if (set.pieces.empty()) return {"0"};
  std::vector<std::string> alternatives;
  for (const std::vector<AffineConstraint>& piece : set.pieces) {
    std::vector<std::string> texts;
    for (const AffineConstraint& constraint : piece)
      texts.push_back(fmt::format("{} {} 0", constraint.form.c_text(names), constraint.equality ? "==" : ">="));
    if (set.pieces.size() == 1) return texts;
    alternatives.push_back(fmt::format("({})", fmt::join(texts, " && ")));
  }
  std::ranges::sort(alternatives);
  return {fmt::format("({})", fmt::join(alternatives, " || "))};
}

isl::set enter_loop(const isl::set& implemented, const LoopBounds& bounds) {
  // One more dimension, unconstrained but for the bounds.
  isl::set wider = isl::manage(isl_set_add_dims(implemented.copy(), isl_dim_set, 1));
  isl::set renamed = isl::manage(isl_set_reset_space(wider.release(), bounds.implemented.space().release()));
  return renamed.intersect(bounds.implemented);
}

bool may_be_empty(const isl::set& inside, const isl::set& outside) {
  const auto last = static_cast<unsigned>(isl_set_dim(inside.get(), isl_dim_set)) - 1;
  isl::set has_one = isl::manage(isl_set_project_out(inside.copy(), isl_dim_set, last, 1));
  has_one = isl::manage(isl_set_reset_space(has_one.release(), outside.space().release()));
  return !outside.is_subset(has_one);
}

isl::set loop_domain(const Domains& domains, const Kernel& kernel, const NestNode& node,
                     const std::vector<std::string>& outer) {
  std::vector<std::string> onto = outer;
  onto.push_back(node.iname);
  std::vector<int> instructions;
  collect_instructions(node, instructions);
  isl::set result;
  for (const int index : instructions) {
    const isl::set one = project_dimensions(domains.over(kernel.instructions[static_cast<size_t>(index)].within), onto);
    result = result.is_null() ? one : result.unite(one);
  }
  return result.coalesce();
}

}  // namespace megalith::loop
