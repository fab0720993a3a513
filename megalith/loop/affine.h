// Quasi-affine integer forms outside isl: small enough to evaluate in nanoseconds and to print as C. isl decides what
// the bounds of a loop or of a footprint are; what is left of its answer is one of these.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace megalith::loop {

/// constant + sum of coefficient * (a variable, or floor(numerator / denominator)). Variables are positions in a list
/// of names that whoever builds the form chooses.
struct QuasiAffine {
  struct Term {
    int64_t coefficient = 1;
    int variable = -1;                             // or, if negative:
    std::shared_ptr<const QuasiAffine> numerator;  // floor(numerator / denominator), denominator > 0
    int64_t denominator = 1;
  };
  int64_t constant = 0;
  std::vector<Term> terms;

  int64_t eval(const int64_t* values) const {
    int64_t result = constant;
    for (const Term& term : terms)
      result += term.coefficient * (term.variable >= 0 ? values[term.variable]
                                                       : floor_divide(term.numerator->eval(values), term.denominator));
    return result;
  }
  bool is_constant() const { return terms.empty(); }
  /// As a C expression; floor divisions are calls of floord(a, b).
  std::string c_text(std::span<const std::string> names) const;

  static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
};

/// form >= 0, or form == 0.
struct AffineConstraint {
  QuasiAffine form;
  bool equality = false;

  bool holds(const int64_t* values) const {
    const int64_t value = form.eval(values);
    return equality ? value == 0 : value >= 0;
  }
};

/// A union of conjunctions: a set in a form whose membership costs nanoseconds.
struct AffineSet {
  std::vector<std::vector<AffineConstraint>> pieces;

  bool contains(const int64_t* values) const;
  bool is_universe() const { return pieces.size() == 1 && pieces[0].empty(); }
};

/// A value for each piece of a domain.
struct PiecewiseAffine {
  struct Piece {
    AffineSet domain;
    QuasiAffine value;
  };
  std::vector<Piece> pieces;

  /// False if the values lie outside every piece.
  bool eval(const int64_t* values, int64_t& result) const;
};

/// The bounds of one loop variable: the union, over alternatives, of [max(lower), min(upper)).
struct AffineRange {
  struct Alternative {
    std::vector<QuasiAffine> lower, upper;  // upper is exclusive
  };
  std::vector<Alternative> alternatives;

  void eval(const int64_t* values, int64_t& begin, int64_t& end) const;
};

/// isl to own forms. `names`: the variables; every parameter and dimension that occurs must be among them. UserError if
/// a coefficient does not fit 64 bits.
QuasiAffine quasi_affine(const isl::aff& aff, std::span<const std::string> names);
AffineSet affine_set(const isl::set& set, std::span<const std::string> names);
PiecewiseAffine piecewise_affine(const isl::pw_aff& pw_aff, std::span<const std::string> names);

/// What `domain` says about its last dimension, given the others, as bounds; `implemented` (may be null) becomes the
/// set of points between them (a superset of `domain` if that has holes). UserError if a side is unbounded.
AffineRange last_dimension_range(const isl::set& domain, std::span<const std::string> names, isl::set* implemented);

}  // namespace megalith::loop
