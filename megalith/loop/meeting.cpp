#include "megalith/loop/meeting.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace megalith::loop {

isl::map values_at(const isl::set& points, const std::vector<isl::aff>& forms) {
  isl_aff_list* list = isl_aff_list_alloc(isl_set_get_ctx(points.get()), static_cast<int>(forms.size()));
  for (const isl::aff& form : forms) list = isl_aff_list_add(list, form.copy());
  isl_space* space = isl_space_from_domain(points.space().release());
  space = isl_space_add_dims(space, isl_dim_out, static_cast<unsigned>(forms.size()));
  isl_map* map = isl_map_from_multi_aff(isl_multi_aff_from_aff_list(space, list));
  return isl::manage(isl_map_intersect_domain(map, points.copy()));
}

ElementMap element_map(const isl::set& points, const std::vector<Expr>& args) {
  ElementMap result;
  std::vector<isl::aff> indices;
  for (const Expr& arg : args) {
    const auto index = to_isl_aff(points.space(), arg);
    result.is_affine.push_back(index.has_value());
    if (index) indices.push_back(*index);
  }
  result.map = values_at(points, indices);
  return result;
}

bool TensorAccess::is_affine() const {
  return std::ranges::all_of(elements.is_affine, [](bool affine) { return affine; });
}

std::optional<unsigned> TensorAccess::position(const std::string& iname) const {
  const auto found = std::ranges::find(inames, iname);
  return found == inames.end() ? std::nullopt : std::optional(static_cast<unsigned>(found - inames.begin()));
}

std::vector<TensorAccess> tensor_accesses(const Kernel& kernel, const Domains& domains,
                                          const std::function<bool(const std::string&)>& wanted) {
  std::vector<TensorAccess> accesses;
  for (size_t i = 0; i < kernel.instructions.size(); ++i)
    visit_expressions(kernel.instructions[i], [&](const Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || !wanted(expr.name)) return;
      const isl::set points = project_dimensions(place_domain(domains, place), place.inames);
      ElementMap elements = element_map(points, expr.args);
      accesses.push_back({i, &expr, place.is_target, place.inames, points, std::move(elements)});
    });
  return accesses;
}

std::optional<isl::map> meetings(const TensorAccess& a, const TensorAccess& b) {
  if (!a.is_affine() || !b.is_affine() || a.expr->args.size() != b.expr->args.size()) return std::nullopt;
  return a.elements.map.apply_range(b.elements.map.reverse());
}

isl::map compared(const isl::map& like, unsigned a, unsigned b, bool equal) {
  isl_map* map = isl_map_universe(like.space().release());
  map = equal ? isl_map_equate(map, isl_dim_in, static_cast<int>(a), isl_dim_out, static_cast<int>(b))
              : isl_map_order_lt(map, isl_dim_in, static_cast<int>(a), isl_dim_out, static_cast<int>(b));
  return isl::manage(map);
}

size_t shared_loops(const Kernel& kernel, size_t first, size_t last) {
  size_t shared = kernel.instructions[first].within.size();
  for (size_t i = first; i < last; ++i) {
    if (kernel.instructions[i + 1].is_behind_barrier) return 0;
    const std::vector<std::string>&a = kernel.instructions[i].within, &b = kernel.instructions[i + 1].within;
    const auto common = std::ranges::mismatch(a, b);
    shared = std::min(shared, static_cast<size_t>(common.in1 - a.begin()));
  }
  return shared;
}

std::vector<std::string> cut_inames(const Kernel& kernel, const Domains& domains) {
  std::vector<std::string> inames;
  for (const auto& [iname, tag] : kernel.tags)
    if (tag == InameTag::task && isl_set_is_singleton(domains.over({iname}).get()) != isl_bool_true)
      inames.push_back(iname);
  return inames;
}

}  // namespace megalith::loop
