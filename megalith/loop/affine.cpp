#include "megalith/loop/affine.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "megalith/base/error.h"

namespace megalith::loop {

namespace {

int64_t to_integer(isl_val* taken) {
  const isl::val value = isl::manage(taken);
  constexpr int64_t kLimit = int64_t{1} << 60;
  MEGALITH_ASSERT(isl_val_is_int(value.get()) == isl_bool_true, "not an integer");
  MEGALITH_CHECK(isl_val_cmp_si(value.get(), kLimit) < 0 && isl_val_cmp_si(value.get(), -kLimit) > 0,
                 "[domain] a coefficient does not fit 64 bits");
  return isl_val_get_num_si(value.get());
}

int position(std::span<const std::string> names, const char* name) {
  const auto found = std::ranges::find(names, name ? name : "");
  MEGALITH_ASSERT(found != names.end(), "no variable \"{}\"", name ? name : "(unnamed)");
  return static_cast<int>(found - names.begin());
}

void add_terms(QuasiAffine& result, isl_aff* aff, isl_dim_type type, std::span<const std::string> names) {
  for (int i = 0; i < isl_aff_dim(aff, type); ++i) {
    const int64_t coefficient = to_integer(isl_aff_get_coefficient_val(aff, type, i));
    if (coefficient != 0)
      result.terms.push_back({coefficient, position(names, isl_aff_get_dim_name(aff, type, i)), {}, 1});
  }
}

// `aff` times its denominator, which is returned in `denominator`.
QuasiAffine numerator_of(const isl::aff& aff, std::span<const std::string> names, int64_t& denominator) {
  isl_val* d = isl_aff_get_denominator_val(aff.get());
  const isl::aff scaled = isl::manage(isl_aff_scale_val(aff.copy(), isl_val_copy(d)));
  denominator = to_integer(d);
  QuasiAffine result;
  result.constant = to_integer(isl_aff_get_constant_val(scaled.get()));
  add_terms(result, scaled.get(), isl_dim_in, names);
  add_terms(result, scaled.get(), isl_dim_param, names);
  for (int i = 0; i < isl_aff_dim(scaled.get(), isl_dim_div); ++i) {
    const int64_t coefficient = to_integer(isl_aff_get_coefficient_val(scaled.get(), isl_dim_div, i));
    if (coefficient == 0) continue;
    QuasiAffine::Term term{coefficient, -1, {}, 1};
    const isl::aff inside = isl::manage(isl_aff_get_div(scaled.get(), i));
    term.numerator = std::make_shared<QuasiAffine>(numerator_of(inside, names, term.denominator));
    result.terms.push_back(std::move(term));
  }
  return result;
}

QuasiAffine divided(QuasiAffine numerator, int64_t denominator, int64_t coefficient) {
  QuasiAffine result;
  if (denominator == 1) {
    result = std::move(numerator);
    result.constant *= coefficient;
    for (QuasiAffine::Term& term : result.terms) term.coefficient *= coefficient;
  } else if (numerator.is_constant()) {
    result.constant = coefficient * QuasiAffine::floor_divide(numerator.constant, denominator);
  } else {
    result.terms.push_back({coefficient, -1, std::make_shared<QuasiAffine>(std::move(numerator)), denominator});
  }
  return result;
}

using ConstraintVisitor = std::function<void(isl_constraint*)>;

void for_each_constraint(const isl::basic_set& set, const ConstraintVisitor& visit) {
  isl_basic_set_foreach_constraint(
      set.get(),
      [](isl_constraint* constraint, void* user) {
        (*static_cast<const ConstraintVisitor*>(user))(constraint);
        isl_constraint_free(constraint);
        return isl_stat_ok;
      },
      const_cast<ConstraintVisitor*>(&visit));
}

isl::aff constraint_aff(isl_constraint* constraint) { return isl::manage(isl_constraint_get_aff(constraint)); }

AffineConstraint affine_constraint(isl_constraint* constraint, std::span<const std::string> names) {
  AffineConstraint result;
  result.form = quasi_affine(constraint_aff(constraint), names);
  result.equality = isl_constraint_is_equality(constraint) == isl_bool_true;
  return result;
}

bool uses_variable(const QuasiAffine& form, int variable) {
  return std::ranges::any_of(form.terms, [&](const QuasiAffine::Term& term) {
    return term.variable == variable || (term.numerator && uses_variable(*term.numerator, variable));
  });
}

// The sets of points above the lower bounds and below the upper bounds of one basic set.
struct Sides {
  AffineRange::Alternative bounds;
  isl::set above, below;
};

Sides read_sides(const isl::basic_set& piece, std::span<const std::string> names, int last, const isl::space& space) {
  Sides sides{{}, isl::set::universe(space), isl::set::universe(space)};
  const int variable = position(names, isl_space_get_dim_name(space.get(), isl_dim_set, static_cast<unsigned>(last)));
  for_each_constraint(piece, [&](isl_constraint* constraint) {
    const int64_t coefficient = to_integer(isl_constraint_get_coefficient_val(constraint, isl_dim_set, last));
    if (coefficient == 0) return;
    AffineConstraint read = affine_constraint(constraint, names);
    std::erase_if(read.form.terms, [&](const QuasiAffine::Term& term) { return term.variable == variable; });
    if (uses_variable(read.form, variable)) return;  // inside a floor: a hole in the range, not a bound of it
    const auto half_space = [&](bool lower) {
      // coefficient * x + rest >= 0, which for an equality is one of its two halves
      isl_aff* aff = isl_constraint_get_aff(constraint);
      if (read.equality && lower != (coefficient > 0)) aff = isl_aff_neg(aff);
      return isl::manage(isl_set_from_basic_set(
          isl_aff_ge_basic_set(aff, isl_aff_zero_on_domain(isl_aff_get_domain_local_space(aff)))));
    };
    if (coefficient > 0 || read.equality) {
      // x >= ceil(-rest / c) = -floor(rest / c)
      QuasiAffine rest = coefficient > 0 ? read.form : divided(read.form, 1, -1);
      sides.bounds.lower.push_back(divided(std::move(rest), std::abs(coefficient), -1));
      sides.above = sides.above.intersect(half_space(true));
    }
    if (coefficient < 0 || read.equality) {
      QuasiAffine rest = coefficient < 0 ? read.form : divided(read.form, 1, -1);
      QuasiAffine upper = divided(std::move(rest), std::abs(coefficient), 1);
      upper.constant += 1;
      sides.bounds.upper.push_back(std::move(upper));
      sides.below = sides.below.intersect(half_space(false));
    }
  });
  return sides;
}

}  // namespace

std::string QuasiAffine::c_text(std::span<const std::string> names) const {
  std::string text;
  // Positive terms first, so that `n - i` does not read `-i + n`.
  for (const bool positive : {true, false})
    for (const Term& term : terms) {
      if ((term.coefficient > 0) != positive) continue;
      const std::string factor = term.variable >= 0
                                     ? names[static_cast<size_t>(term.variable)]
                                     : fmt::format("floord({}, {})", term.numerator->c_text(names), term.denominator);
      const int64_t size = std::abs(term.coefficient);
      const char* sign = text.empty() ? (positive ? "" : "-") : (positive ? " + " : " - ");
      text += size == 1 ? fmt::format("{}{}", sign, factor) : fmt::format("{}{} * {}", sign, size, factor);
    }
  if (text.empty()) return fmt::format("{}", constant);
  if (constant != 0) text += fmt::format(" {} {}", constant < 0 ? "-" : "+", std::abs(constant));
  return text;
}

bool AffineSet::contains(const int64_t* values) const {
  return std::ranges::any_of(pieces, [&](const std::vector<AffineConstraint>& piece) {
    return std::ranges::all_of(piece, [&](const AffineConstraint& constraint) { return constraint.holds(values); });
  });
}

bool PiecewiseAffine::eval(const int64_t* values, int64_t& result) const {
  for (const Piece& piece : pieces)
    if (piece.domain.contains(values)) {
      result = piece.value.eval(values);
      return true;
    }
  return false;
}

void AffineRange::eval(const int64_t* values, int64_t& begin, int64_t& end) const {
  begin = std::numeric_limits<int64_t>::max();
  end = std::numeric_limits<int64_t>::min();
  for (const Alternative& alternative : alternatives) {
    int64_t lo = std::numeric_limits<int64_t>::min(), hi = std::numeric_limits<int64_t>::max();
    for (const QuasiAffine& bound : alternative.lower) lo = std::max(lo, bound.eval(values));
    for (const QuasiAffine& bound : alternative.upper) hi = std::min(hi, bound.eval(values));
    begin = std::min(begin, lo);
    end = std::max(end, hi);
  }
}

QuasiAffine quasi_affine(const isl::aff& aff, std::span<const std::string> names) {
  int64_t denominator = 1;
  QuasiAffine numerator = numerator_of(aff, names, denominator);
  return divided(std::move(numerator), denominator, 1);
}

AffineSet affine_set(const isl::set& set, std::span<const std::string> names) {
  AffineSet result;
  const isl::set explicit_divs = isl::manage(isl_set_compute_divs(set.copy()));
  explicit_divs.foreach_basic_set([&](const isl::basic_set& piece) {
    auto& constraints = result.pieces.emplace_back();
    for_each_constraint(piece, [&](isl_constraint* c) { constraints.push_back(affine_constraint(c, names)); });
  });
  return result;
}

PiecewiseAffine piecewise_affine(const isl::pw_aff& pw_aff, std::span<const std::string> names) {
  PiecewiseAffine result;
  pw_aff.foreach_piece([&](const isl::set& domain, const isl::multi_aff& value) {
    result.pieces.push_back({affine_set(domain, names), quasi_affine(value.at(0), names)});
  });
  return result;
}

AffineRange last_dimension_range(const isl::set& domain, std::span<const std::string> names, isl::set* implemented) {
  const int last = isl_set_dim(domain.get(), isl_dim_set) - 1;
  const isl::space space = domain.space();
  isl::set simple = isl::manage(isl_set_remove_redundancies(isl_set_compute_divs(domain.coalesce().release())));
  AffineRange range;
  isl::set above = isl::set::empty(space), below = isl::set::empty(space);
  simple.foreach_basic_set([&](const isl::basic_set& piece) {
    if (piece.is_empty()) return;
    Sides sides = read_sides(piece, names, last, space);
    // What bounds it by a quotient alone (every second point, in groups) does so roughly without it.
    if (sides.bounds.lower.empty() || sides.bounds.upper.empty())
      sides = read_sides(isl::manage(isl_basic_set_remove_divs(piece.copy())), names, last, space);
    const char* name = isl_space_get_dim_name(space.get(), isl_dim_set, static_cast<unsigned>(last));
    MEGALITH_CHECK(!sides.bounds.lower.empty() && !sides.bounds.upper.empty(),
                   "[domain] the iname \"{}\" has no {} bound", name, sides.bounds.lower.empty() ? "lower" : "upper");
    range.alternatives.push_back(std::move(sides.bounds));
    above = above.unite(sides.above);
    below = below.unite(sides.below);
  });
  if (implemented) *implemented = above.intersect(below);
  return range;
}

}  // namespace megalith::loop
