#include "megalith/loop/implied.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/set.h>

#include <algorithm>
#include <vector>

namespace megalith::loop {

isl::set without_implied(const isl::set& set) {
  const isl::set simple = isl::manage(isl_set_compute_divs(set.coalesce().release()));
  std::vector<isl::basic_set> pieces;
  simple.foreach_basic_set([&](const isl::basic_set& piece) { pieces.push_back(piece); });
  if (pieces.size() != 1 || isl_basic_set_dim(pieces[0].get(), isl_dim_div) <= 0) return set;
  const auto last = static_cast<unsigned>(isl_set_dim(set.get(), isl_dim_set)) - 1;
  std::vector<isl_constraint*> constraints;
  isl_constraint_list* list = isl_basic_set_get_constraint_list(pieces[0].get());
  for (int i = 0; i < isl_constraint_list_n_constraint(list); ++i)
    constraints.push_back(isl_constraint_list_get_constraint(list, i));
  isl_constraint_list_free(list);
  const auto all_but = [&](size_t without) {
    isl_basic_set* rest = isl_basic_set_universe(set.space().release());
    for (size_t i = 0; i < constraints.size(); ++i)
      if (i != without && constraints[i])
        rest = isl_basic_set_add_constraint(rest, isl_constraint_copy(constraints[i]));
    return rest;
  };
  // 1 for a lower bound of the last dimension, -1 for an upper one, 0 for what is none or says it by a quotient.
  const auto side = [&](isl_constraint* constraint) {
    if (!constraint || isl_constraint_is_equality(constraint) == isl_bool_true) return 0;
    isl_constraint* whole = isl_constraint_copy(constraint);
    const auto num_divs = static_cast<unsigned>(isl_constraint_dim(whole, isl_dim_div));
    const isl::val factor = isl::manage(isl_constraint_get_coefficient_val(whole, isl_dim_set, static_cast<int>(last)));
    const bool by_quotient = isl_constraint_involves_dims(whole, isl_dim_div, 0, num_divs) == isl_bool_true;
    isl_constraint_free(whole);
    return by_quotient ? 0 : isl_val_sgn(factor.get());
  };
  for (size_t i = 0; i < constraints.size(); ++i) {
    const int own = side(constraints[i]);
    const auto others =
        std::ranges::count_if(constraints, [&](isl_constraint* other) { return own != 0 && side(other) == own; });
    if (others < 2) continue;
    isl_aff* less = isl_aff_add_constant_si(isl_aff_neg(isl_constraint_get_aff(constraints[i])), -1);
    const isl::basic_set broken = isl::manage(isl_basic_set_add_constraint(all_but(i), isl_inequality_from_aff(less)));
    if (broken.is_empty()) constraints[i] = isl_constraint_free(constraints[i]);
  }
  isl_basic_set* result = all_but(constraints.size());
  for (isl_constraint* constraint : constraints) isl_constraint_free(constraint);
  const isl::set fewer = isl::manage(isl_set_from_basic_set(result));
  return fewer.is_equal(set) ? fewer : set;
}

}  // namespace megalith::loop
