#include "megalith/loop/count_points.h"

#include <isl/set.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "megalith/base/error.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/domain.h"

namespace megalith::loop {

namespace {

void collect_variables(const QuasiAffine& form, std::vector<int>& variables) {
  for (const QuasiAffine::Term& term : form.terms) {
    if (term.variable >= 0)
      variables.push_back(term.variable);
    else
      collect_variables(*term.numerator, variables);
  }
}

// For each dimension the group it belongs to: dimensions tied by a constraint are in one.
std::vector<int> groups_of(const std::vector<AffineConstraint>& constraints, size_t num_dimensions) {
  std::vector<int> group(num_dimensions);
  std::iota(group.begin(), group.end(), 0);
  for (const AffineConstraint& constraint : constraints) {
    std::vector<int> tied;
    collect_variables(constraint.form, tied);
    for (const int variable : tied) {
      const int from = group[static_cast<size_t>(variable)], to = group[static_cast<size_t>(tied[0])];
      std::ranges::replace(group, from, to);
    }
  }
  return group;
}

// Counts the points of a piece by running over its loops; the innermost is counted at once if its bounds are exact.
class LoopCount {
 public:
  explicit LoopCount(const isl::set& set) : names_(variable_names(set)), values_(names_.size()) {
    isl::set implemented = isl::manage(isl_set_from_params(set.params().release()));
    std::vector<std::string> open;
    for (const std::string& name : names_) {
      open.push_back(name);
      LoopBounds bounds;
      ranges_.push_back(last_dimension_range(project_dimensions(set, open), names_, &bounds.implemented));
      implemented = enter_loop(implemented, bounds);
    }
    is_exact_ = implemented.is_subset(set);
    if (!is_exact_) guard_ = affine_set(set, names_);
  }

  int64_t run(size_t depth = 0) {
    if (depth == ranges_.size()) return is_exact_ || guard_.contains(values_.data());
    int64_t begin = 0, end = 0, total = 0;
    ranges_[depth].eval(values_.data(), begin, end);
    if (is_exact_ && depth + 1 == ranges_.size()) return std::max<int64_t>(end - begin, 0);
    for (int64_t i = begin; i < end; ++i) {
      values_[depth] = i;
      total += run(depth + 1);
    }
    return total;
  }

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> values_;
  std::vector<AffineRange> ranges_;
  bool is_exact_ = false;
  AffineSet guard_;
};

// A single interval of consecutive integers, which most groups are.
bool count_interval(const std::vector<AffineConstraint>& constraints, int variable, int64_t& count) {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  for (const AffineConstraint& constraint : constraints) {
    const auto& terms = constraint.form.terms;
    std::vector<int> variables;
    collect_variables(constraint.form, variables);
    if (std::ranges::find(variables, variable) == variables.end()) continue;
    if (terms.size() != 1 || terms[0].variable < 0 || std::abs(terms[0].coefficient) != 1) return false;
    const int64_t bound = -terms[0].coefficient * constraint.form.constant;
    if (terms[0].coefficient > 0 || constraint.equality) lo = std::max(lo, bound);
    if (terms[0].coefficient < 0 || constraint.equality) hi = std::min(hi, bound);
  }
  if (lo == INT64_MIN || hi == INT64_MAX) return false;
  count = std::max<int64_t>(hi - lo + 1, 0);
  return true;
}

int64_t count_piece(const isl::basic_set& piece) {
  const isl::set set(piece);
  if (set.is_empty()) return 0;
  const std::vector<std::string> names = variable_names(set);
  const AffineSet forms = affine_set(set, names);
  MEGALITH_ASSERT(forms.pieces.size() == 1, "one basic set, {} pieces", forms.pieces.size());
  const std::vector<int> group = groups_of(forms.pieces[0], names.size());
  int64_t product = 1;
  for (size_t d = 0; d < names.size(); ++d) {
    if (std::find(group.begin(), group.begin() + static_cast<ptrdiff_t>(d), group[d]) !=
        group.begin() + static_cast<ptrdiff_t>(d))
      continue;  // counted with the first of its group
    std::vector<std::string> members;
    for (size_t e = d; e < names.size(); ++e)
      if (group[e] == group[d]) members.push_back(names[e]);
    int64_t count = 0;
    if (members.size() > 1 || !count_interval(forms.pieces[0], static_cast<int>(d), count))
      count = LoopCount(project_dimensions(set, members)).run();
    MEGALITH_CHECK(!__builtin_mul_overflow(product, count, &product), "[count] more than 2^63 points");
  }
  return product;
}

}  // namespace

int64_t count_points(const isl::set& set) {
  isl::set simple = isl::manage(isl_set_compute_divs(set.copy()));
  if (simple.n_basic_set() > 1)
    simple = isl::manage(isl_set_compute_divs(isl_set_make_disjoint(simple.coalesce().release())));
  int64_t total = 0;
  simple.foreach_basic_set([&](const isl::basic_set& piece) { total += count_piece(piece); });
  return total;
}

int64_t count_elements(const std::vector<Box>& boxes) {
  // Cut along every face of every box, and ask of each cell whether some box has it.
  if (boxes.empty()) return 0;
  const size_t rank = boxes[0].lo.size();
  std::vector<std::vector<int64_t>> cuts(rank);
  for (const Box& box : boxes)
    for (size_t d = 0; d < rank; ++d) cuts[d].insert(cuts[d].end(), {box.lo[d], box.hi[d]});
  for (std::vector<int64_t>& cut : cuts) {
    std::ranges::sort(cut);
    cut.erase(std::unique(cut.begin(), cut.end()), cut.end());
  }
  int64_t total = 0;
  std::vector<size_t> cell(rank);
  for (;;) {
    Box here;
    for (size_t d = 0; d < rank; ++d) {
      here.lo.push_back(cuts[d][cell[d]]);
      here.hi.push_back(cuts[d][std::min(cell[d] + 1, cuts[d].size() - 1)]);
    }
    if (std::ranges::any_of(boxes, [&](const Box& box) { return box.contains(here); })) total += here.num_elements();
    size_t d = 0;
    for (; d < rank && ++cell[d] + 1 >= cuts[d].size(); ++d) cell[d] = 0;
    if (d == rank) return total;
  }
}

}  // namespace megalith::loop
