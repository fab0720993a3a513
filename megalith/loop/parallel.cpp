#include "megalith/loop/parallel.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <set>

#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/barriers.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/recall.h"
#include "megalith/loop/storage.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

class Analysis {
 public:
  explicit Analysis(const Kernel& kernel) : kernel_(kernel), domains_(kernel), prefix_(message_prefix(kernel.name)) {}

  Parallel run() {
    find_axes();
    find_spaces();
    result_.nest = build_nest(kernel_);
    check_lanes();
    const auto accesses = instance_accesses(kernel_, domains_, [&](const std::string& name) {
      const auto space = result_.spaces.find(name);
      return space == result_.spaces.end() || space->second != Space::thread;
    });
    for (const Dependence& dependence : dependences(kernel_, accesses)) check(dependence);
    check_vectors();
    const BarrierCounts barriers = place_barriers(result_.nest, demands_);
    result_.num_barriers = barriers.all;
    result_.num_warp_barriers = barriers.of_warps;
    return std::move(result_);
  }

 private:
  const Kernel& kernel_;
  Domains domains_;
  std::string prefix_;
  Parallel result_;
  std::array<bool, kNumAxes> is_single_{};  // the axis has one index only
  std::vector<BarrierDemand> demands_;

  const std::string& id(size_t instruction) const { return kernel_.instructions[instruction].id; }

  void find_axes() {
    result_.inames.resize(kernel_.instructions.size());
    result_.num_threads.fill(1);
    is_single_.fill(true);
    for (size_t i = 0; i < kernel_.instructions.size(); ++i) {
      const Instruction& instruction = kernel_.instructions[i];
      MEGALITH_CHECK(
          instruction.tags.empty(),
          "{} {} has a tag in \"{}\" alone, which is for bodies of operators: duplicate {} there, and tag the copy",
          prefix_, instruction.tags.begin()->first, instruction.id, instruction.tags.begin()->first);
      for (const std::string& iname : instruction.within) {
        const auto axis = axis_of(kernel_, iname);
        if (!axis) continue;
        std::string& there = result_.inames[i][static_cast<size_t>(*axis)];
        MEGALITH_CHECK(there.empty(),
                       "{} instruction \"{}\" is within {} and {}, which are both tagged {}: tag one of them "
                       "otherwise",
                       prefix_, instruction.id, there, iname, tag_name(tag_of(kernel_, iname)));
        there = iname;
        result_.inames_along[static_cast<size_t>(*axis)].insert(iname);
      }
      visit_expressions(instruction, [&](const Expr& expr, const Place&) {
        if (expr.kind != Expr::Kind::reduce) return;
        for (const std::string& iname : expr.inames)
          MEGALITH_CHECK(
              !axis_of(kernel_, iname),
              "{} instruction \"{}\" reduces over {}, which is tagged {}: no thread has a part of a sum; split "
              "the reduction first",
              prefix_, instruction.id, iname, tag_name(tag_of(kernel_, iname)));
      });
    }
    for (size_t axis = 0; axis < result_.inames_along.size(); ++axis)
      for (const std::string& iname : result_.inames_along[axis]) look_at(iname, axis);
    for (const auto& [iname, tag] : kernel_.tags) {
      const auto axis = axis_of(tag);
      if (!axis || !result_.inames_along[static_cast<size_t>(*axis)].contains(iname)) continue;
      if (tag != InameTag::lane && tag != InameTag::warp) continue;
      MEGALITH_CHECK(
          result_.num_threads[3] <= kWarpThreads,
          "{} {} is tagged {}, and a block has {} threads along axis 0, where a warp has its {} lanes: split "
          "the other inames of that axis",
          prefix_, iname, tag_name(tag), result_.num_threads[3], kWarpThreads);
      result_.num_threads[3] = kWarpThreads;
      result_.has_axis[3] = true;
      is_single_[3] = false;
    }
    check_block();
  }

  void check_block() const {
    int64_t all = 1;
    for (const int64_t number : result_.num_threads) all *= number;
    if (all > 1024) throw CapacityError(fmt::format("{} a block would have {} threads: at most 1024", prefix_, all));
  }

  // The index along an axis is the iname itself: it starts at 0 or later.
  void look_at(const std::string& iname, size_t axis) {
    result_.has_axis[axis] = true;
    const isl::set values = domains_.over({iname});
    if (values.is_empty()) return;
    const isl::val least = isl::manage(isl_set_dim_min_val(values.copy(), 0));
    MEGALITH_CHECK(least.is_int() && isl_val_is_nonneg(least.get()) == isl_bool_true,
                   "{} {} is tagged {} and may be negative: shift it so that it starts at 0", prefix_, iname,
                   tag_name(tag_of(kernel_, iname)));
    const isl::val most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
    is_single_[axis] = is_single_[axis] && most.is_zero();
    if (is_block_axis(static_cast<int>(axis))) return;
    MEGALITH_CHECK(most.is_int() && isl_val_cmp_si(most.get(), 1024) < 0,
                   "{} {} is tagged {} and takes {} values: a block has at most 1024 threads; split {} first", prefix_,
                   iname, tag_name(tag_of(kernel_, iname)), most.is_int() ? "more than 1024" : "as many as sizes say",
                   iname);
    result_.num_threads[axis] = std::max<int64_t>(result_.num_threads[axis], isl_val_get_num_si(most.get()) + 1);
  }

  // ---- who runs what ------------------------------------------------------------------------------------------------

  enum class Who { index, first, all };  // the iname's value, 0, or everyone

  Who who(size_t instruction, int axis) const {
    if (!result_.iname(instruction, axis).empty()) return Who::index;
    return result_.is_in_all(kernel_, instruction, axis) ? Who::all : Who::first;
  }
  unsigned position(size_t instruction, int axis) const {
    const std::vector<std::string>& within = kernel_.instructions[instruction].within;
    return static_cast<unsigned>(std::ranges::find(within, result_.iname(instruction, axis)) - within.begin());
  }

  static isl::map bounded(const isl::map& pairs, isl_dim_type type, unsigned at, bool is_zero) {
    return isl::manage(is_zero ? isl_map_fix_si(pairs.copy(), type, at, 0)
                               : isl_map_lower_bound_si(pairs.copy(), type, at, 1));
  }

  // Those of the pairs that run at different (or, if `same`, at one) index along the axis.
  isl::map along(const isl::map& pairs, size_t from, size_t to, int axis, bool same) const {
    const isl::map none = isl::manage(isl_map_empty(pairs.space().release()));
    if (!result_.has_axis[static_cast<size_t>(axis)] || is_single_[static_cast<size_t>(axis)])
      return same ? pairs : none;
    const Who a = who(from, axis), b = who(to, axis);
    if (a == Who::index && b == Who::index) {
      const unsigned i = position(from, axis), j = position(to, axis);
      const isl::map equal = pairs.intersect(compared(pairs, i, j, true));
      return same ? equal : pairs.subtract(equal);
    }
    if (a == Who::all || b == Who::all) {
      // Where both are everywhere, each has its own; else everyone has to do with one.
      if (a == b) return same ? pairs : none;
      return pairs;
    }
    if (a == Who::index) return bounded(pairs, isl_dim_in, position(from, axis), same);
    if (b == Who::index) return bounded(pairs, isl_dim_out, position(to, axis), same);
    return same ? pairs : none;
  }

  // ---- vectors ------------------------------------------------------------------------------------------------------

  // The iterations of a loop tagged vec touch nothing of each other.
  void check_vectors() const {
    if (std::ranges::none_of(kernel_.tags, [](const auto& tag) { return tag.second == InameTag::vector; })) return;
    const auto accesses = instance_accesses(kernel_, domains_, [](const std::string&) { return true; });
    for (const Dependence& dependence : dependences(kernel_, accesses)) {
      const size_t from = dependence.from->instruction, to = dependence.to->instruction;
      const std::vector<std::string>& within = kernel_.instructions[from].within;
      isl::map tied = dependence.pairs;
      const size_t shared = shared_loops(kernel_, std::min(from, to), std::max(from, to));
      for (unsigned d = 0; d < shared; ++d) {
        const isl::map carried = tied.intersect(compared(tied, d, d, false));
        MEGALITH_CHECK(tag_of(kernel_, within[d]) != InameTag::vector || carried.is_empty(),
                       "{}, in another iteration of {} (at {}), which is tagged vec: privatise {}, or untag {}",
                       described(dependence), within[d], example_of(kernel_, from, to, carried),
                       dependence.from->expr->name, within[d]);
        tied = tied.intersect(compared(tied, d, d, true));
      }
    }
  }

  // ---- spaces -------------------------------------------------------------------------------------------------------

  void find_spaces() {
    const std::map<std::string, std::vector<Flow>> flows = flows_of_temporaries(kernel_, domains_);
    for (const TensorArgument& tensor : kernel_.tensors)
      if (tensor.role == Role::temporary)
        result_.spaces[tensor.name] = tensor.space == Space::automatic ? Space::thread : tensor.space;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto& [name, space] : result_.spaces) {
        const std::string reason = fault(flows.at(name), name, space);
        if (reason.empty()) continue;
        const TensorArgument& tensor = *kernel_.find_tensor(name);
        MEGALITH_CHECK(tensor.space == Space::automatic, "{} {} is {}, but {}", prefix_, name, space_name(space),
                       reason);
        space = space == Space::thread ? Space::block : Space::global;  // lanes are asked for
        changed = true;
      }
      changed |= spread_over_storages();
    }
  }

  // Temporaries that share memory are in one space.
  bool spread_over_storages() {
    if (std::ranges::all_of(kernel_.tensors, &std::string::empty, &TensorArgument::storage)) return false;
    bool changed = false;
    for (auto& [name, space] : result_.spaces)
      for (const auto& [other, wider] : result_.spaces) {
        if (!share_storage(kernel_, name, other) || wider <= space) continue;
        MEGALITH_CHECK(kernel_.find_tensor(name)->space == Space::automatic,
                       "{} {} is {}, but shares memory with {}, which is {}", prefix_, name, space_name(space), other,
                       space_name(wider));
        space = wider;
        changed = true;
      }
    return changed;
  }

  // Why the temporary cannot be there; "" if it can.
  std::string fault(const std::vector<Flow>& flows, const std::string& name, Space space) const {
    if (space == Space::global) return "";
    for (const Flow& flow : flows)
      for (int axis = 0; axis < kNumAxes; ++axis) {
        if (space == Space::block && !is_block_axis(axis)) continue;
        if (space == Space::warp && axis == kLaneAxis) continue;
        if (who(flow.from, axis) == Who::all) continue;  // each has it
        const isl::map elsewhere = along(flow.pairs, flow.from, flow.to, axis, false);
        if (elsewhere.is_empty()) continue;
        return fmt::format("instruction \"{}\" reads in one {} what \"{}\" writes to {} in another (at {})",
                           id(flow.to), is_block_axis(axis) ? "block" : "thread", id(flow.from), name,
                           example_of(kernel_, flow.from, flow.to, elsewhere));
      }
    return "";
  }

  // ---- lanes --------------------------------------------------------------------------------------------------------

  void check_lanes() {
    for (const auto& [name, space] : result_.spaces) {
      if (space != Space::warp) continue;
      MEGALITH_CHECK(
          result_.num_threads[kLaneAxis] == kWarpThreads,
          "{} {} is in lanes, and a block has {} threads along axis 0, where a warp has its {}: tag an iname lane, "
          "or make {} shared",
          prefix_, name, result_.num_threads[kLaneAxis], kWarpThreads, name);
      result_.lane_axes[name] = lane_axis(name);
    }
    if (result_.lane_axes.empty()) return;
    for (size_t i = 0; i < kernel_.instructions.size(); ++i)
      visit_expressions(kernel_.instructions[i], [&](const Expr& expr, const Place& place) {
        const auto axis = result_.lane_axes.find(expr.name);
        if (expr.kind != Expr::Kind::subscript || place.is_target || axis == result_.lane_axes.end()) return;
        if (result_.is_own_lane(kernel_, i, expr.args[axis->second])) return;
        const bool is_always =
            place.guards.empty() && place.inames.size() == kernel_.instructions[i].within.size() && !place.in_subscript;
        MEGALITH_CHECK(
            is_always && is_innermost(i),
            "{} instruction \"{}\" reads {} of another lane {}, where not all lanes come along: let it stand by "
            "itself in the loop over lanes, or make {} shared",
            prefix_, id(i), print(expr),
            is_always ? fmt::format("inside of a loop in that over {}", result_.iname(i, kLaneAxis))
                      : "inside of a reduction or a condition",
            expr.name);
      });
  }

  // The axis by which each lane writes its own.
  size_t lane_axis(const std::string& name) const {
    const size_t rank = kernel_.find_tensor(name)->shape.size();
    std::vector<bool> is_lane(rank, true);
    const Instruction* writer = nullptr;
    for (size_t i = 0; i < kernel_.instructions.size(); ++i) {
      const Expr& target = kernel_.instructions[i].target;
      if (target.name != name) continue;
      for (size_t d = 0; d < rank; ++d)
        is_lane[d] = is_lane[d] && target.args[d].kind == Expr::Kind::name && !result_.iname(i, kLaneAxis).empty() &&
                     target.args[d].name == result_.iname(i, kLaneAxis);
      writer = &kernel_.instructions[i];
    }
    const auto found = std::ranges::find(is_lane, true);
    MEGALITH_CHECK(writer && found != is_lane.end(),
                   "{} {} is in lanes, and \"{}\" writes {}: let one axis have the iname that is tagged lane for its "
                   "subscript wherever it is written, or make {} shared",
                   prefix_, name, writer ? writer->id : "", writer ? print(writer->target) : name, name);
    return static_cast<size_t>(found - is_lane.begin());
  }

  // Whether nothing but the instruction is in the loop over lanes around it, and in others over threads inside of that.
  bool is_innermost(size_t instruction) const {
    const std::vector<NestNode>* nodes = &result_.nest;
    bool in_lanes = false;
    for (;;) {
      const NestNode& node = (*nodes)[child_of(*nodes, instruction)];
      if (in_lanes && nodes->size() != 1) return false;
      if (node.iname.empty()) return true;
      const auto axis = axis_of(kernel_, node.iname);
      if (in_lanes && (!axis || is_block_axis(*axis))) return false;
      in_lanes = in_lanes || axis == kLaneAxis;
      nodes = &node.body;
    }
  }

  // ---- barriers -----------------------------------------------------------------------------------------------------

  void check(const Dependence& dependence) {
    const size_t from = dependence.from->instruction, to = dependence.to->instruction;
    if (is_unordered(from, to)) return;
    const auto space = result_.spaces.find(dependence.from->expr->name);
    const bool is_warp = space != result_.spaces.end() && space->second == Space::warp;
    const bool is_block = is_warp || (space != result_.spaces.end() && space->second == Space::block);
    isl::map pairs = dependence.pairs;
    for (int axis = 0; axis < kNumAxes; ++axis) {
      if (!is_block_axis(axis)) continue;
      if (!is_block) {
        const isl::map across = along(pairs, from, to, axis, false);
        if (!across.is_empty()) refuse_across_blocks(dependence, axis, across);
      }
      pairs = along(pairs, from, to, axis, true);
    }
    // Each warp has its own.
    for (int axis = kLaneAxis + 1; is_warp && axis < kNumAxes; ++axis) pairs = along(pairs, from, to, axis, true);
    isl::map crossing = isl::manage(isl_map_empty(pairs.space().release()));
    for (int axis = 0; axis < kNumAxes; ++axis)
      if (!is_block_axis(axis)) crossing = crossing.unite(along(pairs, from, to, axis, false));
    if (!crossing.is_empty()) demand(dependence, crossing);
  }

  bool is_unordered(size_t a, size_t b) const {
    const auto names = [&](size_t one, size_t other) {
      return std::ranges::find(kernel_.instructions[one].unordered, id(other)) !=
             kernel_.instructions[one].unordered.end();
    };
    return names(a, b) || names(b, a);
  }

  std::string described(const Dependence& dependence) const {
    const char* first = dependence.from->is_write ? "writes" : "reads";
    const char* second = dependence.to->is_write ? "writes" : "reads";
    return fmt::format("{} instruction \"{}\" {} {} after \"{}\" {} {}", prefix_, id(dependence.to->instruction),
                       second, print(*dependence.to->expr), id(dependence.from->instruction), first,
                       print(*dependence.from->expr));
  }

  [[noreturn]] void refuse_across_blocks(const Dependence& dependence, int axis, const isl::map& across) const {
    const size_t from = dependence.from->instruction, to = dependence.to->instruction;
    throw UserError(fmt::format(
        "{}, in another block of g.{} (at {}): missing barrier, and there is none over all blocks inside "
        "of a kernel; {} "
        "must stay within a block, or the kernel must end in between (barrier before {})",
        described(dependence), axis, example_of(kernel_, from, to, across), dependence.from->expr->name, id(to)));
  }

  void demand(const Dependence& dependence, const isl::map& crossing) {
    const size_t from = dependence.from->instruction, to = dependence.to->instruction;
    const std::vector<std::string>& within = kernel_.instructions[from].within;
    const size_t shared = shared_loops(kernel_, std::min(from, to), std::max(from, to));
    isl::map tied = crossing;
    for (size_t level = 0; level < shared; ++level) {
      const auto d = static_cast<unsigned>(level);
      const isl::map carried = tied.intersect(compared(tied, d, d, false));
      if (!carried.is_empty()) demand_at(dependence, level + 1, true, within, carried);
      tied = tied.intersect(compared(tied, d, d, true));
    }
    if (!tied.is_empty()) demand_at(dependence, shared, false, within, tied);
  }

  void demand_at(const Dependence& dependence, size_t level, bool carried, const std::vector<std::string>& within,
                 const isl::map& pairs) {
    const size_t from = dependence.from->instruction, to = dependence.to->instruction;
    for (size_t i = 0; i < level; ++i) {
      const auto axis = axis_of(kernel_, within[i]);
      if (!axis || is_block_axis(*axis)) continue;
      const std::string where = fmt::format(
          "{}, in another thread (at {}), and no barrier can stand inside of the loop over "
          "{}, which is tagged {}",
          described(dependence), example_of(kernel_, from, to, pairs), within[i], tag_name(tag_of(kernel_, within[i])));
      if (from == to)
        throw UserError(fmt::format("{}: untag {}, or let no two of its values touch one element of {}", where,
                                    within[i], dependence.from->expr->name));
      throw UserError(fmt::format("{}: duplicate {} in \"{}\", so that each has its own loop, or untag it", where,
                                  within[i], id(to)));
    }
    demands_.push_back({from, to, level, carried, is_in_warp(from, to, pairs)});
  }

  // Whether all of the pairs are of threads of one warp.
  bool is_in_warp(size_t from, size_t to, const isl::map& pairs) const {
    int64_t all = 1;
    for (int axis = 0; axis < kNumAxes; ++axis)
      if (!is_block_axis(axis)) all *= result_.num_threads[static_cast<size_t>(axis)];
    if (all <= kWarpThreads) return true;
    for (int axis = 0; axis < kNumAxes; ++axis)
      if (!is_block_axis(axis) && result_.num_threads[static_cast<size_t>(axis)] > 1)
        for (const size_t instruction : {from, to})
          if (who(instruction, axis) == Who::all) return false;
    const isl::map same = warp_of(from).apply_range(warp_of(to).reverse());
    return pairs.is_subset(same);
  }

  // The points of an instruction -> the warp that runs them.
  isl::map warp_of(size_t instruction) const {
    std::vector<std::string> terms;
    int64_t stride = 1;
    for (int axis = 3; axis < kNumAxes; ++axis) {
      if (const std::string& iname = result_.iname(instruction, axis); !iname.empty())
        terms.push_back(fmt::format("{} * {}", stride, iname));
      stride *= result_.num_threads[static_cast<size_t>(axis)];
    }
    if (terms.empty()) terms.emplace_back("0");
    return isl::map(isl_context(), fmt::format("{{ [{}] -> [floor(({}) / {})] }}",
                                               fmt::join(kernel_.instructions[instruction].within, ", "),
                                               fmt::join(terms, " + "), kWarpThreads));
  }
};

}  // namespace

bool Parallel::is_in_all(const Kernel& kernel, size_t instruction, int axis) const {
  const auto space = spaces.find(kernel.instructions[instruction].target.name);
  if (space == spaces.end()) return false;
  if (space->second == Space::warp) return axis != kLaneAxis;
  return space->second == Space::thread || (space->second == Space::block && is_block_axis(axis));
}

bool Parallel::is_own_lane(const Kernel& kernel, size_t instruction, const Expr& index) const {
  const std::string& own = iname(instruction, kLaneAxis);
  if (!own.empty()) return index.kind == Expr::Kind::name && index.name == own;
  return !is_in_all(kernel, instruction, kLaneAxis) && constant_value(index) == 0;
}

Parallel make_parallel(const Kernel& kernel) {
  // A schedule asks after its last step, and the code for each target again.
  thread_local Recall<Parallel> known(8);
  std::string question = print(kernel);
  if (const Parallel* parallel = known.find(question)) return *parallel;
  const Parallel parallel = Analysis(kernel).run();
  known.keep(std::move(question), parallel);
  return parallel;
}

}  // namespace megalith::loop
