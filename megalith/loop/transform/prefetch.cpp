// prefetch, precompute, buffer: the part of a tensor that a tile touches, in a temporary
#include <isl/aff.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/access.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/linear_sum.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/reduction.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

struct Read {
  size_t instruction = 0;
  bool is_write = false;
  std::vector<LinearSum> swept;  // of each axis: what the swept inames have in it, and the constant
};

// What all reads have in common, axis by axis.
struct Axis {
  LinearSum base;  // without what is swept
  int64_t least = 0, most = 0;

  int64_t length() const { return most - least + 1; }
};

// An axis of the copy: of all between the first and the last element that is read of one axis, or of what one iname takes
// of it where those lie apart.
struct CopyAxis {
  size_t axis = 0;
  std::string swept;  // "" for all
  int64_t factor = 1, least = 0, length = 1;
};

class Prefetch {
 public:
  // `writes`: what is written goes to the copy, too, and comes back when the tile is done.
  Prefetch(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep, bool writes)
      : kernel_(kernel), tensor_(tensor_of(kernel, tensor)), sweep_(sweep), writes_(writes), domains_(kernel) {
    if (!tensor_.shape_known) refuse(kernel, "the shape of \"{}\" is not known", tensor);
    for (const std::string& iname : sweep) check_has_iname(kernel, iname);
    axes_.resize(tensor_.shape.size());
  }

  Kernel run(const std::string& buffer, std::vector<std::string> inames) {
    check_is_free(kernel_, buffer);
    for (size_t i = 0; i < kernel_.instructions.size(); ++i)
      visit_expressions(kernel_.instructions[i], [&](const Expr& expr, const Place& place) {
        if (is_copied(expr, place)) look_at(i, expr, place);
      });
    if (reads_.empty()) refuse(kernel_, "no instruction reads \"{}\"", tensor_.name);
    if (writes_ && std::ranges::none_of(reads_, &Read::is_write))
      refuse(kernel_, "no instruction writes \"{}\": prefetch it", tensor_.name);
    find_copy_axes();
    find_place();
    if (!writes_) check_unchanged();
    name(inames, buffer);

    Kernel result = kernel_;
    result.order = kernel_.inames();
    const auto behind = around_.empty() ? result.order.begin() : std::ranges::find(result.order, around_.back()) + 1;
    result.order.insert(behind, inames_.begin(), inames_.end());
    replace_reads(result, buffer);
    const Instruction copy = copying(result, buffer);
    const bool is_loaded = !writes_ || needs_values();
    add_domain_of(result, is_loaded);
    if (writes_) insert_instructions(result, place_behind(), {storing(result, copy)});
    if (is_loaded) insert_instructions(result, place_, {copy});
    TensorArgument temporary{
        .name = buffer, .role = Role::temporary, .dtype = tensor_.dtype, .shape = {}, .shape_known = true};
    for (const CopyAxis& axis : copy_axes_) temporary.shape.push_back(make_integer(axis.length));
    if (temporary.shape.empty()) temporary.shape.push_back(make_integer(1));
    result.tensors.push_back(std::move(temporary));
    return finished(std::move(result));
  }

 private:
  const Kernel& kernel_;
  const TensorArgument& tensor_;
  const std::vector<std::string>& sweep_;
  const bool writes_;
  Domains domains_;
  std::vector<Read> reads_;
  std::vector<Axis> axes_;
  std::vector<CopyAxis> copy_axes_;  // longer than 1
  std::vector<LinearSum> starts_;    // of each axis: where its first element is
  std::vector<std::string> around_;  // the loops around the copy
  std::vector<std::string> inames_;  // of the copy, one for each of its axes
  size_t place_ = 0;                 // of the copy among the instructions

  bool is_copied(const Expr& expr, const Place& place) const {
    return expr.kind == Expr::Kind::subscript && expr.name == tensor_.name && (writes_ || !place.is_target);
  }

  bool mentions_sweep(const Expr& expr) const {
    return std::ranges::any_of(sweep_, [&](const std::string& iname) { return mentions(expr, iname); });
  }

  void look_at(size_t instruction, const Expr& expr, const Place& place) {
    Read read{instruction, place.is_target, {}};
    for (size_t d = 0; d < expr.args.size(); ++d) {
      LinearSum rest, swept;
      const LinearSum whole = sum_of(expr.args[d]);
      for (const LinearSum::Term& term : whole.terms) {
        if (!mentions_sweep(term.atom)) {
          if (reads_tensor(term.atom))
            refuse(kernel_, "{} depends on data: what a tile reads of \"{}\" is not known", print(expr), tensor_.name);
          rest.terms.push_back(term);
        } else if (term.atom.kind == Expr::Kind::name) {
          swept.terms.push_back(term);
        } else {
          refuse(kernel_, "{} has {} of what is swept, which is no multiple of an iname", print(expr),
                 print(term.atom));
        }
      }
      swept.constant = whole.constant;
      widen(axes_[d], rest, swept, expr, place);
      read.swept.push_back(std::move(swept));
    }
    reads_.push_back(std::move(read));
  }

  void widen(Axis& axis, const LinearSum& rest, const LinearSum& swept, const Expr& expr, const Place& place) {
    const auto [least, most] = range_of(swept, expr, place);
    if (reads_.empty()) {
      axis = {rest, least, most};
      return;
    }
    LinearSum difference = rest;
    difference.add(axis.base, -1);
    if (!difference.terms.empty())
      refuse(kernel_, "reads of \"{}\" are not next to each other: {} has {} where another has {}", tensor_.name,
             print(expr), print(expression_of(rest)), print(expression_of(axis.base)));
    axis.least = std::min(axis.least, least);
    axis.most = std::max(axis.most, most);
  }

  // Of what is swept, whatever the other inames and sizes are.
  std::pair<int64_t, int64_t> range_of(const LinearSum& swept, const Expr& expr, const Place& place) const {
    int64_t least = swept.constant, most = swept.constant;
    for (const auto& [atom, coefficient] : swept.terms) {
      const std::string& iname = atom.name;
      if (!is_among(place.inames, iname)) refuse(kernel_, "{} has no \"{}\" to sweep over", print(expr), iname);
      const auto [first, last] = values_of(iname);
      const bool rises = coefficient > 0;
      least = added(least, coefficient, rises ? first : last);
      most = added(most, coefficient, rises ? last : first);
    }
    int64_t length = 0;
    if (__builtin_sub_overflow(most, least, &length) || length >= 1 << 24)
      refuse(kernel_, "a tile of \"{}\" has more than {} elements along an axis", tensor_.name, 1 << 24);
    return {least, most};
  }

  std::pair<int64_t, int64_t> values_of(const std::string& iname) const {
    const isl::set values = domains_.over({iname});
    const isl::val low = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                   high = isl::manage(isl_set_dim_max_val(values.copy(), 0));
    if (!low.is_int() || !high.is_int())
      refuse(kernel_,
             "how many values \"{}\" takes is no number: split it, and sweep the inner iname, or assume how large it "
             "gets",
             iname);
    return {isl_val_get_num_si(low.get()), isl_val_get_num_si(high.get())};
  }

  void find_copy_axes() {
    for (size_t d = 0; d < axes_.size(); ++d) {
      LinearSum start = axes_[d].base;
      std::vector<CopyAxis> apart = axes_apart(d);
      if (apart.empty())
        apart.push_back({.axis = d, .swept = "", .least = axes_[d].least, .length = axes_[d].length()});
      else
        start.constant += reads_.front().swept[d].constant;
      for (const CopyAxis& axis : apart) start.constant = added(start.constant, axis.factor, axis.least);
      std::erase_if(apart, [](const CopyAxis& axis) { return axis.length == 1; });
      copy_axes_.insert(copy_axes_.end(), apart.begin(), apart.end());
      starts_.push_back(std::move(start));
    }
  }

  // One for each iname where all reads have the same multiples of them, which leave gaps: of 64 * h + v, v < 4, that is h and
  // v. Nothing if there are no gaps.
  std::vector<CopyAxis> axes_apart(size_t d) const {
    const LinearSum& first = reads_.front().swept[d];
    for (const Read& read : reads_) {
      LinearSum difference = read.swept[d];
      difference.add(first, -1);
      if (!difference.terms.empty() || difference.constant != 0) return {};
    }
    std::vector<CopyAxis> apart;
    int64_t all = 1;
    for (const std::string& iname : sweep_) {
      const int64_t factor = first.coefficient(iname).value_or(0);
      const bool is_there = std::ranges::find(apart, iname, &CopyAxis::swept) != apart.end();
      if (factor == 0 || is_there) continue;
      const auto [low, high] = values_of(iname);
      apart.push_back({.axis = d, .swept = iname, .factor = factor, .least = low, .length = high - low + 1});
      if (__builtin_mul_overflow(all, apart.back().length, &all)) return {};
    }
    return all < axes_[d].length() ? apart : std::vector<CopyAxis>();
  }

  // What the copy reads along each axis.
  std::vector<LinearSum> copied() const {
    std::vector<LinearSum> at = starts_;
    for (size_t i = 0; i < copy_axes_.size(); ++i)
      at[copy_axes_[i].axis].add(sum_of(make_name(inames_[i])), copy_axes_[i].factor);
    return at;
  }

  // The loops that say where the tile lies, and the place before everything that shares more with a read than those.
  void find_place() {
    std::set<std::string> needed;
    for (const Axis& axis : axes_)
      for (const LinearSum::Term& term : axis.base.terms)
        for (const std::string& iname : kernel_.inames())
          if (mentions(term.atom, iname)) needed.insert(iname);
    const size_t first = reads_.front().instruction;
    const std::vector<std::string>& within = kernel_.instructions[first].within;
    for (const std::string& iname : within) {
      if (needed.empty() || is_among(sweep_, iname)) break;
      around_.push_back(iname);
      needed.erase(iname);
    }
    if (!needed.empty()) {
      const std::string& iname = *needed.begin();
      if (is_among(within, iname))
        refuse(kernel_,
               "which part of \"{}\" is read depends on \"{}\", whose loop is inside of what is swept: order \"{}\" "
               "before {}",
               tensor_.name, iname, iname, fmt::join(sweep_, ", "));
      refuse(kernel_,
             "which part of \"{}\" is read depends on \"{}\", over which {} sums: accumulate it first, or sweep it "
             "too",
             tensor_.name, iname, kernel_.instructions[first].id);
    }
    for (const Read& read : reads_)
      if (shared_loops(kernel_, first, read.instruction) < around_.size())
        refuse(kernel_, "\"{}\" and \"{}\" read \"{}\" in different loops over {}", kernel_.instructions[first].id,
               kernel_.instructions[read.instruction].id, tensor_.name, fmt::join(around_, ", "));
    place_ = first;
    while (place_ > 0 && shared_loops(kernel_, place_ - 1, first) > around_.size()) --place_;
  }

  void check_unchanged() const {
    for (size_t i = place_; i < kernel_.instructions.size(); ++i)
      if (kernel_.instructions[i].target.name == tensor_.name)
        refuse(kernel_, "\"{}\" writes \"{}\", which would have been copied before", kernel_.instructions[i].id,
               tensor_.name);
  }

  void name(const std::vector<std::string>& given, const std::string& buffer) {
    const size_t wanted = copy_axes_.size();
    if (!given.empty() && given.size() != wanted)
      refuse(kernel_, "{} inames are given for the copy of \"{}\", which has {} axes", given.size(), tensor_.name,
             wanted);
    for (size_t i = 0; i < wanted; ++i) {
      inames_.push_back(given.empty() ? free_name(kernel_, fmt::format("{}_{}", buffer, i)) : given[i]);
      check_is_free(kernel_, inames_.back());
    }
  }

  void replace_reads(Kernel& result, const std::string& buffer) const {
    size_t next = 0;
    for (size_t i = 0; i < result.instructions.size(); ++i)
      rewrite_in_order(result.instructions[i], [&](Expr& expr) {
        std::vector<Expr> args = place_in_copy(reads_[next++]);
        if (args.empty()) args.push_back(make_integer(0));
        expr.name = buffer;
        expr.args = std::move(args);
      });
  }

  std::vector<Expr> place_in_copy(const Read& read) const {
    std::vector<Expr> args;
    for (const CopyAxis& axis : copy_axes_) {
      LinearSum at = axis.swept.empty() ? read.swept[axis.axis] : sum_of(make_name(axis.swept));
      at.constant -= axis.least;
      args.push_back(expression_of(at));
    }
    return args;
  }

  // ---- what is written ------------------------------------------------------------------------------------------------

  // Whether the tile needs what the tensor has before it: values that are read and were not written in the same tile, or
  // elements of which data say whether they are written.
  bool needs_values() const {
    bool is_read = false;
    for (const Read& read : reads_) {
      is_read |= !read.is_write;
      if (read.is_write && kernel_.instructions[read.instruction].condition) return true;
    }
    if (!is_read) return false;
    if (tensor_.role == Role::inout) return true;
    for (const Flow& flow : flow_of(kernel_, domains_, tensor_.name))
      for (const std::string& iname : around_) {
        const auto position = [&](size_t instruction) {
          const std::vector<std::string>& within = kernel_.instructions[instruction].within;
          return static_cast<unsigned>(std::ranges::find(within, iname) - within.begin());
        };
        const isl::map same = compared(flow.pairs, position(flow.from), position(flow.to), true);
        if (!flow.pairs.is_subset(same)) return true;
      }
    return false;
  }

  // Behind everything that shares more with the last access than the loops around the tile.
  size_t place_behind() const {
    const size_t last = reads_.back().instruction;
    size_t place = last + 1;
    while (place < kernel_.instructions.size() && shared_loops(kernel_, last, place) > around_.size()) ++place;
    return place;
  }

  static Instruction storing(const Kernel& result, const Instruction& copy) {
    Instruction store = copy;
    std::swap(store.target, store.value);
    store.id = free_id(result, copy.id + "_store");
    return store;
  }

  // Of `points` those where some instruction writes. Without conditions of data.
  isl::set written(const Kernel& box, const isl::set& points, const std::vector<std::string>& both) const {
    isl::set result = isl::manage(isl_set_empty(points.space().release()));
    const Domains domains(box);
    for (const Read& read : reads_) {
      if (!read.is_write) continue;
      std::vector<std::string> all = kernel_.instructions[read.instruction].within;
      all.insert(all.end(), inames_.begin(), inames_.end());
      all = domains.sorted(all);
      isl::set at = domains.over(all);
      const std::vector<Expr> place = place_in_copy(read);
      for (size_t i = 0; i < place.size(); ++i) {
        const auto is = to_isl_aff(at.space(), make_name(inames_[i])), wanted = to_isl_aff(at.space(), place[i]);
        if (!is || !wanted) refuse(kernel_, "{} is not affine", print(place[i]));
        at = at.intersect(is->eq_set(*wanted));
      }
      const isl::set here = project_dimensions(at, both);
      result = result.unite(isl::manage(isl_set_reset_space(here.copy(), points.space().release())));
    }
    return isl::manage(isl_set_coalesce(result.release()));
  }

  // The reads in the order in which visit_expressions() has them: parents first.
  template <class Change>
  void rewrite_in_order(Instruction& instruction, Change change) const {
    std::vector<Expr*> found;
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (is_copied(expr, place)) found.push_back(const_cast<Expr*>(&expr));  // of `instruction`, which is ours
    });
    for (Expr* expr : found) change(*expr);
  }

  Instruction copying(const Kernel& result, const std::string& buffer) const {
    Instruction copy;
    std::set<std::string> ids;
    for (const Instruction& other : result.instructions) ids.insert(other.id);
    copy.id = buffer;
    while (ids.contains(copy.id)) copy.id += "_";
    copy.target.kind = copy.value.kind = Expr::Kind::subscript;
    copy.target.name = buffer;
    copy.value.name = tensor_.name;
    for (const std::string& iname : inames_) copy.target.args.push_back(make_name(iname));
    for (const LinearSum& at : copied()) copy.value.args.push_back(expression_of(at));
    if (copy.target.args.empty()) copy.target.args.push_back(make_integer(0));
    copy.within = around_;
    copy.within.insert(copy.within.end(), inames_.begin(), inames_.end());
    return copy;
  }

  // The box of the tile, and of it what lies inside of the tensor, or what is written (`is_loaded`: no), where that says more.
  void add_domain_of(Kernel& result, bool is_loaded) const {
    std::vector<std::string> constraints;
    for (size_t i = 0; i < inames_.size(); ++i)
      constraints.push_back(fmt::format("0 <= {} < {}", inames_[i], copy_axes_[i].length));
    if (inames_.empty()) return;
    Kernel box = result;
    box.domains.push_back(fmt::format("{{ [{}] : {} }}", fmt::join(inames_, ", "), fmt::join(constraints, " and ")));
    std::vector<std::string> both = around_;
    both.insert(both.end(), inames_.begin(), inames_.end());
    const Domains domains(box);
    const isl::set points = domains.over(both);
    isl::set inside = points;
    const std::vector<LinearSum> read = copied();
    for (size_t d = 0; d < axes_.size(); ++d) {
      const Expr index = expression_of(read[d]);
      const auto aff = to_isl_aff(points.space(), index), size = to_isl_aff(points.space(), tensor_.shape[d]);
      if (!aff || !size) refuse(kernel_, "{} is not affine", print(index));
      inside = inside.intersect(aff->ge_set(aff->sub(*aff))).intersect(aff->lt_set(*size));
    }
    if (!is_loaded) inside = inside.intersect(written(box, points, domains.sorted(both)));
    if (const std::string more = inside.is_equal(points) ? "" : constraints_of(inside.gist(points)); !more.empty())
      constraints.push_back(more);
    result.domains.push_back(fmt::format("{{ [{}] : {} }}", fmt::join(inames_, ", "), fmt::join(constraints, " and ")));
  }
};

}  // namespace

Kernel prefetch(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep,
                const std::string& buffer, const std::vector<std::string>& inames) {
  return Prefetch(kernel, tensor, sweep, false).run(buffer, inames);
}

Kernel buffer(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep,
              const std::string& buffer, const std::vector<std::string>& inames) {
  return Prefetch(kernel, tensor, sweep, true).run(buffer, inames);
}

Kernel precompute(const Kernel& kernel, const std::string& temporary, const std::vector<std::string>& sweep,
                  const std::string& buffer, const std::vector<std::string>& inames) {
  if (kernel.find_rule(temporary))
    return precompute(temporary_of_rule(kernel, temporary), temporary, sweep, buffer, inames);
  return substitute(prefetch(kernel, temporary, sweep, buffer, inames), temporary);
}

}  // namespace megalith::loop
