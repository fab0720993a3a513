#include "megalith/loop/footprint.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/interval.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

// The bounds of one dimension of an access as isl found them, in the variables lo, hi of each tiled iname.
struct IslBounds {
  PiecewiseAffine min, max;
};

// One dimension of an access: exactly one of these.
struct Dimension {
  std::optional<IntervalForm> interval;
  std::optional<IslBounds> isl;
  int64_t extent = 0;  // otherwise: the whole dimension, which data indexes
};

struct TiledAccess {
  std::string tensor;
  bool is_write = false;
  bool is_empty = false;         // no points at all, whatever the tile
  std::vector<Interval> inames;  // the extreme values of each iname of the kernel; 0..0 for those not involved
  std::vector<bool> involved;    // which inames those are
  std::vector<Dimension> dimensions;
};

std::string lo_name(const std::string& iname) { return "lo " + iname; }  // a space: no iname is called so
std::string hi_name(const std::string& iname) { return "hi " + iname; }

// If `set` is a box: the extreme values of its dimensions, which are `inames`.
bool read_box(const AffineSet& set, std::vector<std::optional<int64_t>>& lo, std::vector<std::optional<int64_t>>& hi) {
  if (set.pieces.size() != 1) return false;
  for (const AffineConstraint& constraint : set.pieces[0]) {
    const QuasiAffine& form = constraint.form;
    if (form.terms.empty()) continue;
    if (form.terms.size() != 1 || form.terms[0].variable < 0 || std::abs(form.terms[0].coefficient) != 1) return false;
    const auto variable = static_cast<size_t>(form.terms[0].variable);
    const int64_t coefficient = form.terms[0].coefficient;
    if (coefficient > 0 || constraint.equality)
      lo[variable] = std::max(lo[variable].value_or(INT64_MIN), -coefficient * form.constant);
    if (coefficient < 0 || constraint.equality)
      hi[variable] = std::min(hi[variable].value_or(INT64_MAX), -coefficient * form.constant);
  }
  return true;
}

class Builder {
 public:
  Builder(const Kernel& kernel, const Binding& binding, const std::vector<std::string>& tiled)
      : kernel_(bind_sizes(kernel, binding)), prefix_(message_prefix(kernel.name)), tiled_(tiled) {
    for (const Parameter& parameter : kernel_.parameters)
      throw UserError(fmt::format("{} the parameter \"{}\" has no value", prefix_, parameter.name));
    domains_.emplace(kernel_);
    for (const std::string& iname : tiled)
      MEGALITH_CHECK(std::ranges::find(domains_->inames(), iname) != domains_->inames().end(),
                     "{} there is no iname \"{}\" to tile", prefix_, iname);
    for (const std::string& iname : tiled) {
      variables_.push_back(lo_name(iname));
      variables_.push_back(hi_name(iname));
    }
  }

  std::vector<TiledAccess> build() {
    for (const Instruction& instruction : kernel_.instructions)
      visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
        if (expr.kind != Expr::Kind::subscript) return;
        const TensorArgument* tensor = kernel_.find_tensor(expr.name);
        MEGALITH_CHECK(tensor, "{} instruction \"{}\" names a tensor \"{}\" that the kernel does not declare", prefix_,
                       instruction.id, expr.name);
        if (tensor->role != Role::temporary) add(expr, place, *tensor);
      });
    return std::move(accesses_);
  }

  const std::vector<std::string>& inames() const { return domains_->inames(); }

 private:
  Kernel kernel_;
  std::string prefix_;
  const std::vector<std::string>& tiled_;
  std::optional<Domains> domains_;
  std::vector<std::string> variables_;  // of isl's answers: lo, hi of each tiled iname
  std::vector<TiledAccess> accesses_;
  std::set<std::string> seen_;  // accesses that differ in nothing

  void add(const Expr& expr, const Place& place, const TensorArgument& tensor) {
    MEGALITH_CHECK(expr.args.size() <= kMaxRank, "{} {} has {} dimensions, want at most {}", prefix_, expr.name,
                   expr.args.size(), kMaxRank);
    std::string key = (place.is_target ? "w" : "r") + print(expr);
    for (const std::string& iname : domains_->sorted(place.inames)) key += " " + iname;
    for (const Guard& guard : place.guards) key += (guard.holds ? "+" : "-") + print(*guard.condition);
    if (!seen_.insert(key).second) return;

    const std::vector<std::string>& names = domains_->inames();
    const isl::set domain = place_domain(*domains_, place);
    TiledAccess access;
    access.tensor = expr.name;
    access.is_write = place.is_target;
    access.inames.resize(names.size());
    access.involved.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i)
      access.involved[i] = std::ranges::find(place.inames, names[i]) != place.inames.end();
    const bool is_box = read_extremes(domain, access);
    isl::set tiled;
    for (size_t d = 0; d < expr.args.size() && !access.is_empty; ++d) {
      Dimension dimension;
      if (is_box) dimension.interval = interval_form(expr.args[d], names);
      if (!dimension.interval) {
        if (const auto index = to_isl_aff(domain.space(), expr.args[d])) {
          if (tiled.is_null()) tiled = restricted_to_tile(domain, access);
          dimension.isl = isl_bounds(tiled, *index);
        } else {
          dimension.extent = extent_of(tensor, d);
        }
      }
      access.dimensions.push_back(std::move(dimension));
    }
    if (!access.is_empty) accesses_.push_back(std::move(access));
  }

  // Sets access.inames to what `domain` allows; true if it is a box.
  bool read_extremes(const isl::set& domain, TiledAccess& access) const {
    const std::vector<std::string>& names = domains_->inames();
    std::vector<std::optional<int64_t>> lo(names.size()), hi(names.size());
    bool is_box = read_box(affine_set(domain, names), lo, hi);
    access.is_empty = domain.is_empty();
    if (access.is_empty) return true;
    const std::vector<std::string> dimensions = variable_names(domain);
    for (size_t d = 0; d < dimensions.size(); ++d) {
      const auto at = static_cast<size_t>(std::ranges::find(names, dimensions[d]) - names.begin());
      if (!is_box || !lo[at] || !hi[at]) {
        const isl::val min = domain.dim_min_val(static_cast<int>(d)), max = domain.dim_max_val(static_cast<int>(d));
        MEGALITH_CHECK(isl_val_is_int(min.get()) && isl_val_is_int(max.get()), "{} the iname \"{}\" is unbounded",
                       prefix_, dimensions[d]);
        lo[at] = isl_val_get_num_si(min.get());
        hi[at] = isl_val_get_num_si(max.get());
      }
      access.inames[at] = {*lo[at], *hi[at]};
    }
    return is_box;
  }

  // The points of `domain` in a tile whose ranges are parameters, already cut to what the domain allows.
  isl::set restricted_to_tile(const isl::set& domain, const TiledAccess& access) const {
    isl_set* set = domain.copy();
    const std::vector<std::string>& names = domains_->inames();
    for (const std::string& iname : tiled_) {
      const auto at = static_cast<size_t>(std::ranges::find(names, iname) - names.begin());
      if (!access.involved[at]) continue;
      const auto parameter = static_cast<unsigned>(isl_set_dim(set, isl_dim_param));
      set = isl_set_add_dims(set, isl_dim_param, 2);
      set = isl_set_set_dim_name(set, isl_dim_param, parameter, lo_name(iname).c_str());
      set = isl_set_set_dim_name(set, isl_dim_param, parameter + 1, hi_name(iname).c_str());
      const auto dimension = static_cast<unsigned>(isl_set_find_dim_by_name(set, isl_dim_set, iname.c_str()));
      isl_local_space* space = isl_local_space_from_space(isl_set_get_space(set));
      isl_aff* lo = isl_aff_var_on_domain(isl_local_space_copy(space), isl_dim_param, parameter);
      isl_aff* hi = isl_aff_var_on_domain(isl_local_space_copy(space), isl_dim_param, parameter + 1);
      isl_aff* x = isl_aff_var_on_domain(space, isl_dim_set, dimension);
      set = isl_set_intersect(set, isl_set_from_basic_set(isl_aff_ge_basic_set(isl_aff_copy(x), lo)));
      set = isl_set_intersect(set, isl_aff_lt_set(x, hi));
      const Interval& whole = access.inames[at];
      set = isl_set_lower_bound_val(set, isl_dim_param, parameter, isl_val_int_from_si(isl_context().get(), whole.lo));
      set = isl_set_upper_bound_val(set, isl_dim_param, parameter + 1,
                                    isl_val_int_from_si(isl_context().get(), whole.hi + 1));
    }
    return isl::manage(set);
  }

  IslBounds isl_bounds(const isl::set& tiled, const isl::aff& index) const {
    isl_set* values = isl_set_apply(tiled.copy(), isl_map_from_aff(index.copy()));
    values = isl_set_coalesce(values);
    const isl::pw_aff min = isl::manage(isl_set_dim_min(isl_set_copy(values), 0));
    const isl::pw_aff max = isl::manage(isl_set_dim_max(values, 0));
    return {piecewise_affine(min, variables_), piecewise_affine(max, variables_)};
  }

  int64_t extent_of(const TensorArgument& tensor, size_t d) const {
    MEGALITH_CHECK(tensor.shape_known && d < tensor.shape.size(),
                   "{} dimension {} of {} is indexed by data, so its shape must be declared", prefix_, d, tensor.name);
    const auto extent = constant_value(tensor.shape[d]);
    MEGALITH_CHECK(extent, "{} the shape of {} needs a value for {}", prefix_, tensor.name, print(tensor.shape[d]));
    return *extent;
  }
};

// The box that `access` touches in the tile; false if nothing.
bool box_of(const TiledAccess& access, std::vector<Interval>& inames, const std::vector<int64_t>& variables, Box& box) {
  for (const Dimension& dimension : access.dimensions) {
    Interval range{0, dimension.extent - 1};
    if (dimension.interval) {
      range = dimension.interval->eval(inames);
    } else if (dimension.isl) {
      if (!dimension.isl->min.eval(variables.data(), range.lo) || !dimension.isl->max.eval(variables.data(), range.hi))
        return false;
    }
    box.lo.push_back(range.lo);
    box.hi.push_back(range.hi + 1);
  }
  return true;
}

void add_box(std::vector<Box>& boxes, Box box) {
  if (std::ranges::any_of(boxes, [&](const Box& other) { return other.contains(box); })) return;
  std::erase_if(boxes, [&](const Box& other) { return box.contains(other); });
  boxes.push_back(std::move(box));
}

}  // namespace

bool Box::empty() const {
  for (size_t d = 0; d < lo.size(); ++d)
    if (hi[d] <= lo[d]) return true;
  return false;
}

bool Box::intersects(const Box& other) const {
  if (empty() || other.empty()) return false;
  for (size_t d = 0; d < lo.size(); ++d)
    if (hi[d] <= other.lo[d] || other.hi[d] <= lo[d]) return false;
  return true;
}

bool Box::contains(const Box& other) const {
  if (other.empty()) return true;
  for (size_t d = 0; d < lo.size(); ++d)
    if (other.lo[d] < lo[d] || hi[d] < other.hi[d]) return false;
  return true;
}

int64_t Box::num_elements() const {
  int64_t count = 1;
  for (size_t d = 0; d < lo.size(); ++d) count *= std::max<int64_t>(hi[d] - lo[d], 0);
  return count;
}

struct Footprints::Impl {
  std::vector<std::string> tiled;
  std::vector<size_t> position;  // of each tiled iname among all
  std::vector<TiledAccess> accesses;
};

Footprints::Footprints(const Kernel& kernel, const Binding& binding, std::vector<std::string> tiled) {
  auto impl = std::make_unique<Impl>();
  with_isl_limit(kernel.name, [&] {
    Builder builder(kernel, binding, tiled);
    impl->accesses = builder.build();
    for (const std::string& iname : tiled)
      impl->position.push_back(
          static_cast<size_t>(std::ranges::find(builder.inames(), iname) - builder.inames().begin()));
  });
  impl->tiled = std::move(tiled);
  impl_ = impl.release();
}

Footprints::~Footprints() { delete impl_; }
Footprints::Footprints(Footprints&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}

std::map<std::string, TensorFootprint> Footprints::of_tile(const std::vector<Range>& ranges) const {
  MEGALITH_ASSERT(ranges.size() == impl_->tiled.size(), "{} ranges for {} tiled inames", ranges.size(),
                  impl_->tiled.size());
  for (size_t i = 0; i < ranges.size(); ++i)
    MEGALITH_ASSERT(ranges[i].iname == impl_->tiled[i], "range of {}, wanted {}", ranges[i].iname, impl_->tiled[i]);

  std::map<std::string, TensorFootprint> result;
  std::vector<Interval> inames;
  std::vector<int64_t> variables(2 * ranges.size());
  for (const TiledAccess& access : impl_->accesses) {
    inames = access.inames;
    bool is_empty = false;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const size_t at = impl_->position[i];
      if (!access.involved[at]) continue;
      Interval& range = inames[at];
      range.lo = std::max(range.lo, ranges[i].begin);
      range.hi = std::min(range.hi, ranges[i].end - 1);
      is_empty |= range.hi < range.lo;
      variables[2 * i] = range.lo;
      variables[2 * i + 1] = range.hi + 1;
    }
    Box box;
    if (is_empty || !box_of(access, inames, variables, box)) continue;
    TensorFootprint& footprint = result[access.tensor];
    add_box(access.is_write ? footprint.writes : footprint.reads, std::move(box));
  }
  return result;
}

}  // namespace megalith::loop
