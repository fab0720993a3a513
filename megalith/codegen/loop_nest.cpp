// The nest of a scheduled kernel as loops, conditions and statements.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>

#include "megalith/base/error.h"
#include "megalith/codegen/loop_emitter.h"
#include "megalith/loop/access.h"
#include "megalith/loop/implied.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::InameTag;
using loop::NestNode;
using loop::Space;

std::string folded(const std::vector<std::string>& bounds, const char* combine) {
  std::string text = bounds.back();
  for (size_t i = bounds.size() - 1; i-- > 0;) text = fmt::format("{}({}, {})", combine, bounds[i], text);
  return text;
}

LoopEmitter::Scope LoopEmitter::scope_of(const NestNode& node) {
  if (node.iname.empty()) return node.instruction >= 0 ? kThread : node.is_warp_barrier ? kWarp : kBlock;
  Scope scope = kThread;
  for (const NestNode& child : node.body) scope = std::min(scope, scope_of(child));
  return scope;
}

void LoopEmitter::emit(std::span<const NestNode> nodes, const std::vector<std::string>& outer,
                       const isl::set& implemented) {
  for (size_t i = 0; i < nodes.size();) {
    if (!is_emulated_ || scope_ == kThread || scope_of(nodes[i]) == scope_) {
      emit(nodes[i++], outer, implemented);
      continue;
    }
    size_t end = i;
    Scope inside = kThread;
    for (; end < nodes.size() && scope_of(nodes[end]) > scope_; ++end) inside = std::min(inside, scope_of(nodes[end]));
    const Scope before = std::exchange(scope_, inside);
    if (inside == kWarp) {
      open(fmt::format("for (i64 warp = (kThreads - 1) / {}; warp >= 0; --warp)", loop::kWarpThreads));
    } else if (before == kWarp) {
      open(fmt::format("for (i64 thread = min(kThreads, {0} * (warp + 1)) - 1; thread >= {0} * warp; --thread)",
                       loop::kWarpThreads));
    } else {
      open("for (i64 thread = kThreads - 1; thread >= 0; --thread)");
    }
    if (inside == kThread) line("threadIdx = thread_at(thread);");
    emit(nodes.subspan(i, end - i), outer, implemented);
    close();
    scope_ = before;
    i = end;
  }
}

void LoopEmitter::emit(const NestNode& node, std::vector<std::string> outer, const isl::set& implemented) {
  if (node.iname.empty() && node.instruction < 0) {
    if (is_emulated_)
      line(node.is_warp_barrier ? "// barrier of a warp" : "// barrier");
    else if (is_gpu_)
      line(node.is_warp_barrier ? "__syncwarp();" : "__syncthreads();");
    return;
  }
  if (node.iname.empty()) {
    emit_instruction(static_cast<size_t>(node.instruction), implemented);
    return;
  }
  const int before = depth_;
  if (axis_of(node)) {
    emit_axes(node, outer, implemented);
  } else {
    const isl::set wanted = narrowed(loop::loop_domain(domains_, kernel_, node, outer), implemented);
    const loop::LoopBounds bounds =
        keeps_elements(node) ? whole_bounds(node.iname, wanted, outer) : loop::loop_bounds(wanted, node.iname, outer);
    outer.push_back(node.iname);
    const isl::set inside = loop::enter_loop(implemented, bounds);
    if (!emit_packs(node, bounds, outer, inside)) {
      open_loop(node.iname, bounds);
      emit(node.body, outer, inside);
    }
  }
  while (depth_ > before) close();
}

bool LoopEmitter::keeps_elements(const NestNode& node) const {
  if (node.iname.empty()) return false;
  const std::function<bool(const NestNode&)> is_in = [&](const NestNode& inner) {
    if (!inner.iname.empty() || inner.instruction < 0) return std::ranges::any_of(inner.body, is_in);
    return keeps_elements(kernel_.instructions[static_cast<size_t>(inner.instruction)], node.iname);
  };
  return is_unrolled(node.iname) && is_in(node);
}

bool LoopEmitter::keeps_elements(const loop::Instruction& instruction, const std::string& iname) const {
  bool found = false;
  loop::visit_expressions(instruction, [&](const Expr& expr, const loop::Place&) {
    const auto space = parallel_.spaces.find(expr.name);
    if (expr.kind == Expr::Kind::subscript && space != parallel_.spaces.end() && space->second == Space::thread)
      found |= loop::mentions(expr, iname);
  });
  return found;
}

bool LoopEmitter::is_unrolled(const std::string& iname) const {
  const InameTag tag = loop::tag_of(kernel_, iname);
  return is_gpu_ && (tag == InameTag::unroll || tag == InameTag::interleave || tag == InameTag::vector);
}

loop::LoopBounds LoopEmitter::whole_bounds(const std::string& iname, const isl::set& wanted,
                                           const std::vector<std::string>& outer) const {
  const isl::set values = domains_.over({iname});
  const isl::val least = isl::manage(isl_set_dim_min_val(values.copy(), 0)),
                 most = isl::manage(isl_set_dim_max_val(values.copy(), 0));
  if (!least.is_int() || !most.is_int()) return loop::loop_bounds(wanted, iname, outer);
  const auto last = static_cast<unsigned>(isl_set_dim(wanted.get(), isl_dim_set)) - 1;
  isl_set* all = isl_set_universe(wanted.space().release());
  all = isl_set_lower_bound_val(all, isl_dim_set, last, least.copy());
  all = isl_set_upper_bound_val(all, isl_dim_set, last, most.copy());
  return {.lower = {fmt::format("{}", isl_val_get_num_si(least.get()))},
          .upper = {fmt::format("{}", isl_val_get_num_si(most.get()) + 1)},
          .implemented = isl::manage(all)};
}

isl::set LoopEmitter::narrowed(const isl::set& set, const isl::set& implemented) {
  isl::set wider = isl::manage(isl_set_add_dims(implemented.copy(), isl_dim_set, 1));
  return loop::without_implied(set.intersect(isl::manage(isl_set_reset_space(wider.release(), set.space().release()))));
}

void LoopEmitter::open_loop(const std::string& iname, const loop::LoopBounds& bounds) {
  const InameTag tag = loop::tag_of(kernel_, iname);
  const bool unrolls = tag == InameTag::unroll || tag == InameTag::interleave || (tag == InameTag::vector && is_gpu_);
  // An emulation computes the same without, and is not to be fast: a compiler takes minutes for six such loops in each other.
  if (unrolls && !is_emulated_)
    line(is_gpu_ ? "#pragma unroll" : "#pragma GCC unroll 64");
  else if (tag == InameTag::vector && !is_gpu_)
    line("MEGALITH_INDEPENDENT");
  open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", iname, folded(bounds.lower, "max"),
                   folded(bounds.upper, "min")));
}

void LoopEmitter::emit_instruction(size_t index, const isl::set& implemented) {
  const loop::Instruction& instruction = kernel_.instructions[index];
  instruction_ = &instruction;
  exchange_lanes(index);
  const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
  std::vector<std::string> tests = loop::guards(wanted, implemented);
  const isl::set done = tests.empty() ? implemented : implemented.intersect(wanted.gist(implemented));
  MEGALITH_ASSERT(done.is_equal(wanted), "{} instruction \"{}\": loops and conditions do not run its domain", prefix_,
                  instruction.id);
  implemented_ = wanted;
  outer_ = instruction.within;
  const std::vector<std::string> of_axes = tests_of_axes(index);
  tests.insert(tests.end(), of_axes.begin(), of_axes.end());
  if (!tests.empty()) open(fmt::format("if ({})", fmt::join(tests, " && ")));
  const int before = depth_;
  if (instruction.condition) {
    const std::string text = expressions_.condition(*instruction.condition);
    open(fmt::format("if ({})", text));
  }
  const DType dtype = *tensor(instruction.target.name).dtype;
  const std::string value = expressions_.stored(instruction.value, dtype);
  line(fmt::format("{} = {};", target_pack_.empty() ? expressions_.element(instruction.target) : target_pack_, value));
  while (depth_ > before) close();
  if (!tests.empty()) close();
  if (exchanged_ == static_cast<int>(index)) packed_.clear();
  exchanged_ = -1;
}

}  // namespace megalith::codegen
