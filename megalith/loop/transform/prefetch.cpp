// prefetch, precompute: the part of a tensor that a tile reads, in a temporary
#include <isl/aff.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/access.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// to + a * b
int64_t added(int64_t to, int64_t a, int64_t b) {
  int64_t product = 0, sum = 0;
  MEGALITH_CHECK(!__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(to, product, &sum),
                 "numbers in a subscript are too large");
  return sum;
}

// constant + sum of coefficient * something that is no sum, by its text.
struct Sum {
  std::map<std::string, std::pair<int64_t, Expr>> terms;
  int64_t constant = 0;

  void add(const Sum& other, int64_t factor) {
    constant = added(constant, factor, other.constant);
    for (const auto& [text, term] : other.terms) {
      auto& own = terms.try_emplace(text, 0, term.second).first->second;
      own.first = added(own.first, factor, term.first);
    }
    std::erase_if(terms, [](const auto& entry) { return entry.second.first == 0; });
  }
};

Sum sum_of(const Expr& expr) {
  Sum result;
  if (expr.kind == Expr::Kind::number && expr.is_integer) {
    result.constant = static_cast<int64_t>(expr.number);
    return result;
  }
  if (expr.kind == Expr::Kind::call && (expr.name == "+" || expr.name == "-")) {
    result.add(sum_of(expr.args[0]), 1);
    result.add(sum_of(expr.args[1]), expr.name == "+" ? 1 : -1);
    return result;
  }
  if (expr.kind == Expr::Kind::call && expr.name == "neg") {
    result.add(sum_of(expr.args[0]), -1);
    return result;
  }
  if (expr.kind == Expr::Kind::call && expr.name == "*")
    for (size_t side : {0u, 1u})
      if (const auto number = constant_value(expr.args[side])) {
        result.add(sum_of(expr.args[1 - side]), *number);
        return result;
      }
  result.terms.try_emplace(print(expr), 1, expr);
  return result;
}

Expr expression_of(const Sum& sum) {
  Expr result;
  bool is_empty = true;
  const auto add = [&](const Expr& term, bool negative) {
    if (is_empty)
      result = negative ? make_call("neg", {term}) : term;
    else
      result = make_call(negative ? "-" : "+", {std::move(result), term});
    is_empty = false;
  };
  for (const auto& [text, term] : sum.terms) {
    const int64_t size = std::abs(term.first);
    add(size == 1 ? term.second : make_call("*", {make_integer(size), term.second}), term.first < 0);
  }
  if (sum.constant != 0 || is_empty) add(make_integer(std::abs(sum.constant)), sum.constant < 0);
  return result;
}

struct Read {
  size_t instruction = 0;
  std::vector<Sum> swept;  // of each axis: what the swept inames have in it, and the constant
};

// What all reads have in common, axis by axis.
struct Axis {
  Sum base;  // without what is swept
  int64_t least = 0, most = 0;

  int64_t length() const { return most - least + 1; }
  Sum start() const {
    Sum sum = base;
    sum.constant += least;
    return sum;
  }
};

class Prefetch {
 public:
  Prefetch(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep)
      : kernel_(kernel), tensor_(tensor_of(kernel, tensor)), sweep_(sweep), domains_(kernel) {
    if (!tensor_.shape_known) refuse(kernel, "the shape of \"{}\" is not known", tensor);
    for (const std::string& iname : sweep) check_has_iname(kernel, iname);
    axes_.resize(tensor_.shape.size());
  }

  Kernel run(const std::string& buffer, std::vector<std::string> inames) {
    check_is_free(kernel_, buffer);
    for (size_t i = 0; i < kernel_.instructions.size(); ++i)
      visit_expressions(kernel_.instructions[i], [&](const Expr& expr, const Place& place) {
        if (expr.kind == Expr::Kind::subscript && expr.name == tensor_.name && !place.is_target)
          look_at(i, expr, place);
      });
    if (reads_.empty()) refuse(kernel_, "no instruction reads \"{}\"", tensor_.name);
    find_place();
    check_unchanged();
    name(inames, buffer);

    Kernel result = kernel_;
    result.order = kernel_.inames();
    const auto behind = around_.empty() ? result.order.begin() : std::ranges::find(result.order, around_.back()) + 1;
    result.order.insert(behind, inames_.begin(), inames_.end());
    replace_reads(result, buffer);
    Instruction copy = copying(result, buffer);
    add_domain_of(result);
    insert_instructions(result, place_, {std::move(copy)});
    TensorArgument temporary{
        .name = buffer, .role = Role::temporary, .dtype = tensor_.dtype, .shape = {}, .shape_known = true};
    for (const Axis& axis : axes_)
      if (axis.length() > 1) temporary.shape.push_back(make_integer(axis.length()));
    if (temporary.shape.empty()) temporary.shape.push_back(make_integer(1));
    result.tensors.push_back(std::move(temporary));
    return finished(std::move(result));
  }

 private:
  const Kernel& kernel_;
  const TensorArgument& tensor_;
  const std::vector<std::string>& sweep_;
  Domains domains_;
  std::vector<Read> reads_;
  std::vector<Axis> axes_;
  std::vector<std::string> around_;  // the loops around the copy
  std::vector<std::string> inames_;  // of the copy, one for each axis longer than 1
  size_t place_ = 0;                 // of the copy among the instructions

  bool mentions_sweep(const Expr& expr) const {
    return std::ranges::any_of(sweep_, [&](const std::string& iname) { return mentions(expr, iname); });
  }

  void look_at(size_t instruction, const Expr& expr, const Place& place) {
    Read read{instruction, {}};
    for (size_t d = 0; d < expr.args.size(); ++d) {
      Sum rest, swept;
      const Sum whole = sum_of(expr.args[d]);
      for (const auto& [text, term] : whole.terms) {
        if (!mentions_sweep(term.second)) {
          if (reads_tensor(term.second))
            refuse(kernel_, "{} depends on data: what a tile reads of \"{}\" is not known", print(expr), tensor_.name);
          rest.terms.insert({text, term});
        } else if (term.second.kind == Expr::Kind::name) {
          swept.terms.insert({text, term});
        } else {
          refuse(kernel_, "{} has {} of what is swept, which is no multiple of an iname", print(expr), text);
        }
      }
      swept.constant = whole.constant;
      widen(axes_[d], rest, swept, expr, place);
      read.swept.push_back(std::move(swept));
    }
    reads_.push_back(std::move(read));
  }

  void widen(Axis& axis, const Sum& rest, const Sum& swept, const Expr& expr, const Place& place) {
    const auto [least, most] = range_of(swept, expr, place);
    if (reads_.empty()) {
      axis = {rest, least, most};
      return;
    }
    Sum difference = rest;
    difference.add(axis.base, -1);
    if (!difference.terms.empty())
      refuse(kernel_, "reads of \"{}\" are not next to each other: {} has {} where another has {}", tensor_.name,
             print(expr), print(expression_of(rest)), print(expression_of(axis.base)));
    axis.least = std::min(axis.least, least);
    axis.most = std::max(axis.most, most);
  }

  // Of what is swept, whatever the other inames and sizes are.
  std::pair<int64_t, int64_t> range_of(const Sum& swept, const Expr& expr, const Place& place) const {
    int64_t least = swept.constant, most = swept.constant;
    for (const auto& [iname, term] : swept.terms) {
      if (!is_among(place.inames, iname)) refuse(kernel_, "{} has no \"{}\" to sweep over", print(expr), iname);
      const isl::set values = domains_.over({iname});
      const isl::val low = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                     high = isl::manage(isl_set_dim_max_val(values.copy(), 0));
      if (!low.is_int() || !high.is_int())
        refuse(kernel_, "how many values \"{}\" takes is no number: split it, and sweep the inner iname", iname);
      const int64_t first = isl_val_get_num_si(low.get()), last = isl_val_get_num_si(high.get());
      const bool rises = term.first > 0;
      least = added(least, term.first, rises ? first : last);
      most = added(most, term.first, rises ? last : first);
    }
    int64_t length = 0;
    if (__builtin_sub_overflow(most, least, &length) || length >= 1 << 24)
      refuse(kernel_, "a tile of \"{}\" has more than {} elements along an axis", tensor_.name, 1 << 24);
    return {least, most};
  }

  // The loops that say where the tile lies, and the place before everything that shares more with a read than those.
  void find_place() {
    std::set<std::string> needed;
    for (const Axis& axis : axes_)
      for (const auto& [text, term] : axis.base.terms)
        for (const std::string& iname : kernel_.inames())
          if (mentions(term.second, iname)) needed.insert(iname);
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
    size_t wanted = 0;
    for (const Axis& axis : axes_) wanted += axis.length() > 1 ? 1 : 0;
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
        const Read& read = reads_[next++];
        std::vector<Expr> args;
        for (size_t d = 0; d < axes_.size(); ++d) {
          if (axes_[d].length() == 1) continue;
          Sum at = read.swept[d];
          at.constant -= axes_[d].least;
          args.push_back(expression_of(at));
        }
        if (args.empty()) args.push_back(make_integer(0));
        expr.name = buffer;
        expr.args = std::move(args);
      });
  }

  // The reads in the order in which visit_expressions() has them: parents first.
  template <class Change>
  void rewrite_in_order(Instruction& instruction, Change change) const {
    std::vector<Expr*> found;
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (expr.kind == Expr::Kind::subscript && expr.name == tensor_.name && !place.is_target)
        found.push_back(const_cast<Expr*>(&expr));  // of `instruction`, which is ours
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
    size_t next = 0;
    for (const Axis& axis : axes_) {
      Sum at = axis.start();
      if (axis.length() > 1) {
        const Expr iname = make_name(inames_[next++]);
        at.add(sum_of(iname), 1);
        copy.target.args.push_back(iname);
      }
      copy.value.args.push_back(expression_of(at));
    }
    if (copy.target.args.empty()) copy.target.args.push_back(make_integer(0));
    copy.within = around_;
    copy.within.insert(copy.within.end(), inames_.begin(), inames_.end());
    return copy;
  }

  // The box of the tile, and of it what lies inside of the tensor, where that says more.
  void add_domain_of(Kernel& result) const {
    std::vector<std::string> constraints;
    size_t next = 0;
    for (const Axis& axis : axes_)
      if (axis.length() > 1) constraints.push_back(fmt::format("0 <= {} < {}", inames_[next++], axis.length()));
    if (inames_.empty()) return;
    Kernel box = result;
    box.domains.push_back(fmt::format("{{ [{}] : {} }}", fmt::join(inames_, ", "), fmt::join(constraints, " and ")));
    std::vector<std::string> both = around_;
    both.insert(both.end(), inames_.begin(), inames_.end());
    const Domains domains(box);
    const isl::set points = domains.over(both);
    isl::set inside = points;
    next = 0;
    for (size_t d = 0; d < axes_.size(); ++d) {
      Sum at = axes_[d].start();
      if (axes_[d].length() > 1) at.add(sum_of(make_name(inames_[next++])), 1);
      const Expr index = expression_of(at);
      const auto aff = to_isl_aff(points.space(), index), size = to_isl_aff(points.space(), tensor_.shape[d]);
      if (!aff || !size) refuse(kernel_, "{} is not affine", print(index));
      inside = inside.intersect(aff->ge_set(aff->sub(*aff))).intersect(aff->lt_set(*size));
    }
    if (const std::string more = inside.is_equal(points) ? "" : constraints_of(inside.gist(points)); !more.empty())
      constraints.push_back(more);
    result.domains.push_back(fmt::format("{{ [{}] : {} }}", fmt::join(inames_, ", "), fmt::join(constraints, " and ")));
  }
};

}  // namespace

Kernel prefetch(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep,
                const std::string& buffer, const std::vector<std::string>& inames) {
  return Prefetch(kernel, tensor, sweep).run(buffer, inames);
}

Kernel precompute(const Kernel& kernel, const std::string& temporary, const std::vector<std::string>& sweep,
                  const std::string& buffer, const std::vector<std::string>& inames) {
  if (kernel.find_rule(temporary))
    return precompute(temporary_of_rule(kernel, temporary), temporary, sweep, buffer, inames);
  return substitute(prefetch(kernel, temporary, sweep, buffer, inames), temporary);
}

}  // namespace megalith::loop
