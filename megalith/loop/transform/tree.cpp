// reduce_by_tree
//
//   y[t] = sum(k, e)   ->   part[k] = e;  part[p0] = part[p0] + part[p0 + 4] {p0 < n - 4};  ... + 2;  ... + 1;  y[t] = part[0]
//
// Each level has a loop of its own, so barriers come to stand between them as between any loops. The order of additions is
// that of the kernel's text, on every target.
#include <isl/set.h>

#include <algorithm>
#include <bit>

#include "megalith/loop/text.h"
#include "megalith/loop/transform/reduction.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// A level is an instruction of its own: seventeen of them are enough for anybody.
constexpr int64_t kMaxLanes = 1 << 17;
// The place of a maximum that no lane has found: behind all others.
constexpr int64_t kNowhere = (int64_t{1} << 31) - 1;

class Tree {
 public:
  // `lane` and what it was split from, `outer` ("" if nothing), are inames of `kernel` already.
  Tree(const Kernel& kernel, std::string lane, std::string outer, std::string part, InameTag tag)
      : kernel_(kernel), lane_(std::move(lane)), outer_(std::move(outer)), part_(std::move(part)), tag_(tag) {}

  Kernel run(int64_t factor) {
    result_ = kernel_;
    const FoundReduction found = find_reduction(result_, {lane_});
    reduce_ = *found.expr;
    whole_ = result_.instructions[found.instruction];
    check_can_leave(kernel_, whole_, reduce_);
    for (const Instruction& other : kernel_.instructions)
      if (is_among(other.within, lane_))
        refuse(kernel_, "the instruction {} is within \"{}\" too: duplicate it there first", other.id, lane_);
    is_argmax_ = reduce_.reduce == ReduceOp::argmax;
    if (is_argmax_ && reduce_.args.size() == 2)
      refuse(kernel_, "{} has a condition: where it holds nowhere in a lane, that lane has no place", print(reduce_));
    find_axes();
    count_lanes();
    result_.order = kernel_.inames();
    if (tag_ != InameTag::loop) result_.tags[lane_] = tag_;
    add_tensor(part_, is_argmax_ ? reduce_.args[0].dtype : reduce_.dtype);
    if (is_argmax_) {
      place_ = free_name(result_, part_ + "_at");
      add_tensor(place_, DType::i32);
    }
    if (!is_covered()) add_start();
    add_leaves(factor);
    for (int64_t half = half_of(num_lanes_); half >= 1; half /= 2) add_level(half);
    *found.expr = root();
    Instruction& end = result_.instructions[found.instruction];
    end.depends_on.push_back(new_.back().id);
    insert_instructions(result_, found.instruction, std::move(new_));
    const std::string leaf = leaf_;
    Kernel result = finished(std::move(result_));
    if (!axes_.empty()) check_reads_kept(kernel_, found.instruction, result, leaf);
    return result;
  }

 private:
  const Kernel& kernel_;
  const std::string lane_, outer_, part_;
  const InameTag tag_;
  Kernel result_;
  Expr reduce_;
  Instruction whole_;
  bool is_argmax_ = false;
  std::string place_;  // of the maxima in `part_`
  int64_t num_lanes_ = 0;
  std::vector<std::string> axes_;  // inames inside of the lanes' loop, of which each has a tree of its own
  std::vector<Instruction> new_;
  std::string leaf_;  // the instruction that reads what was summed

  // The largest power of two below.
  static int64_t half_of(int64_t lanes) {
    return lanes < 2 ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(lanes - 1)));
  }

  void find_axes() {
    const std::vector<std::string> order = kernel_.inames();
    for (auto iname = std::ranges::find(order, lane_); iname != order.end(); ++iname)
      if (is_among(whole_.within, *iname)) axes_.push_back(*iname);
  }

  void count_lanes() {
    const isl::set values = Domains(kernel_).over({lane_});
    const isl::val least = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                   most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
    if (!least.is_int() || !most.is_int() || isl_val_is_nonneg(least.get()) != isl_bool_true)
      refuse(kernel_, "how many values \"{}\" takes is no number, or it starts below 0: say how many lanes there are",
             lane_);
    num_lanes_ = isl_val_cmp_si(most.get(), kMaxLanes) < 0 ? isl_val_get_num_si(most.get()) + 1 : kMaxLanes + 1;
    if (num_lanes_ > kMaxLanes) refuse(kernel_, "\"{}\" has more than {} lanes", lane_, kMaxLanes);
  }

  // Whether each lane has a term at each point of the instruction.
  bool is_covered() const {
    std::vector<std::string> both = whole_.within;
    both.push_back(lane_);
    const Domains domains(kernel_);
    const isl::set leaves = project_dimensions(domains.over(both), both);
    isl_set* box =
        isl_set_add_dims(project_dimensions(domains.over(whole_.within), whole_.within).release(), isl_dim_set, 1);
    const auto last = static_cast<unsigned>(whole_.within.size());
    box = isl_set_lower_bound_si(box, isl_dim_set, last, 0);
    box = isl_set_upper_bound_si(box, isl_dim_set, last, static_cast<int>(num_lanes_) - 1);
    box = isl_set_reset_space(box, leaves.space().release());
    return isl::manage(box).is_subset(leaves);
  }

  void add_tensor(const std::string& name, DType dtype) {
    result_.tensors.push_back(
        {.name = name, .role = Role::temporary, .dtype = dtype, .shape = {}, .shape_known = false});
  }

  Expr element(const std::string& tensor, Expr lane) const {
    Expr result;
    result.kind = Expr::Kind::subscript;
    result.name = tensor;
    for (const std::string& iname : axes_) result.args.push_back(make_name(iname));
    result.args.push_back(std::move(lane));
    return result;
  }

  // A loop over the first `count` lanes.
  std::string add_loop(int64_t count) {
    const std::string iname = free_name(result_, lane_ + "_" + std::to_string(count));
    result_.domains.push_back(fmt::format("{{ [{0}] : 0 <= {0} < {1} }}", iname, count));
    result_.order.insert(std::ranges::find(result_.order, lane_), iname);
    if (tag_ != InameTag::loop) result_.tags[iname] = tag_;
    return iname;
  }

  void add(const std::string& id, const std::string& iname, Expr target, Expr value) {
    Instruction next = whole_;
    next.unordered.clear();
    next.id = free_id(result_, id);
    while (std::ranges::find(new_, next.id, &Instruction::id) != new_.end()) next.id += "_";
    next.within.push_back(iname);
    next.target = std::move(target);
    next.value = std::move(value);
    if (!new_.empty()) next.depends_on = {new_.back().id};
    new_.push_back(std::move(next));
  }

  void add_start() {
    const std::string iname = add_loop(num_lanes_);
    add(part_ + "_start", iname, element(part_, make_name(iname)), neutral_of(reduce_));
    if (is_argmax_) add(place_ + "_start", iname, element(place_, make_name(iname)), make_integer(kNowhere));
  }

  void add_leaves(int64_t factor) {
    if (!is_argmax_) {
      add(part_, lane_, element(part_, make_name(lane_)), without_inames(reduce_, {lane_}));
      leaf_ = new_.back().id;
      return;
    }
    // Of one iname; it was split, so its value is found again.
    Expr most = reduce_, place = make_name(lane_);
    most.reduce = ReduceOp::max;
    std::erase(most.inames, lane_);
    if (!outer_.empty()) {
      Expr where = most;
      where.reduce = ReduceOp::argmax;
      place = make_call("+", {make_call("*", {make_integer(factor), std::move(where)}), std::move(place)});
    }
    add(part_, lane_, element(part_, make_name(lane_)), outer_.empty() ? reduce_.args[0] : most);
    leaf_ = new_.back().id;
    add(place_, lane_, element(place_, make_name(lane_)), std::move(place));
  }

  void add_level(int64_t half) {
    const std::string iname = add_loop(std::min(half, num_lanes_ - half));
    const auto own = [&](const std::string& tensor) { return element(tensor, make_name(iname)); };
    const auto other = [&](const std::string& tensor) {
      return element(tensor, make_call("+", {make_name(iname), make_integer(half)}));
    };
    if (is_argmax_) {
      const Expr larger = make_call(">", {other(part_), own(part_)}),
                 same = make_call("==", {other(part_), own(part_)});
      const Expr lower = make_call("<", {other(place_), own(place_)});
      const Expr is_better = make_call("or", {larger, make_call("and", {same, lower})});
      add(fmt::format("{}_{}", place_, half), iname, own(place_),
          make_call("if", {is_better, other(place_), own(place_)}));
    }
    add(fmt::format("{}_{}", part_, half), iname, own(part_), combined(reduce_.reduce, own(part_), other(part_)));
  }

  Expr root() const {
    const Expr first = element(is_argmax_ ? place_ : part_, make_integer(0));
    if (!is_argmax_) return first;
    return make_call("if", {make_call("==", {first, make_integer(kNowhere)}), make_integer(0), first});
  }
};

}  // namespace

Kernel reduce_by_tree(const Kernel& kernel, const std::string& iname, int64_t count, const std::string& part,
                      const std::string& lane, InameTag tag) {
  check_has_iname(kernel, iname);
  check_is_free(kernel, part);
  if (part == lane) refuse(kernel, "\"{}\" cannot name both the partial results and their iname", part);
  Kernel work = kernel;
  find_reduction(work, {iname});
  if (count == 0) {
    if (lane != iname) work = rename(work, iname, lane);
    return Tree(work, lane, "", part, tag).run(1);
  }
  if (count > kMaxLanes) refuse(kernel, "\"{}\" has more than {} lanes", lane, kMaxLanes);
  const std::string outer = free_name(kernel, iname + "_o", {part, lane});
  work = split_with_argmax(work, iname, count, outer, lane);
  return Tree(work, lane, outer, part, tag).run(count);
}

}  // namespace megalith::loop
