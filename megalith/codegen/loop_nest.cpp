// The nest of a scheduled kernel as loops, conditions and statements.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>

#include "megalith/base/error.h"
#include "megalith/codegen/loop_emitter.h"
#include "megalith/loop/access.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::InameTag;
using loop::NestNode;
using loop::Space;

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
    const loop::LoopBounds bounds = keeps_elements(node) ? whole_bounds(domains_, node.iname, wanted, outer)
                                                         : loop::loop_bounds(wanted, node.iname, outer);
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
  return is_gpu_ && is_unrolled(node.iname) && is_in(node);
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
  return tag == InameTag::unroll || tag == InameTag::interleave || (is_gpu_ && tag == InameTag::vector);
}

void LoopEmitter::open_loop(const std::string& iname, const loop::LoopBounds& bounds) {
  if (context_.unrolled.contains(iname))
    line(dialect_.unroll);
  else if (loop::tag_of(kernel_, iname) == InameTag::vector && !is_gpu_)
    line(dialect_.independent);
  open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", iname, join_bounds(bounds.lower, "max"),
                   join_bounds(bounds.upper, "min")));
}

void LoopEmitter::emit_instruction(size_t index, const isl::set& implemented) {
  const loop::Instruction& instruction = kernel_.instructions[index];
  exchange_lanes(index);
  const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
  std::vector<std::string> tests = loop::guards(wanted, implemented);
  const isl::set done = tests.empty() ? implemented : implemented.intersect(wanted.gist(implemented));
  MEGALITH_ASSERT(done.is_equal(wanted), "{} instruction \"{}\": loops and conditions do not run its domain", prefix_,
                  instruction.id);
  writer_.set_scope(instruction.within);
  writer_.set_instruction(static_cast<int>(index));
  context_.whole.clear();
  for (const std::string& iname : kernel_.order)
    if (is_gpu_ && is_unrolled(iname) && keeps_elements(instruction, iname)) context_.whole.insert(iname);
  const std::vector<std::string> of_axes = tests_of_axes(index);
  tests.insert(tests.end(), of_axes.begin(), of_axes.end());
  if (!tests.empty()) open(fmt::format("if ({})", fmt::join(tests, " && ")));
  const int before = depth_;
  if (instruction.condition) open(fmt::format("if ({})", writer_.write(*instruction.condition, Type::truth)));
  line(fmt::format("{} = {};", target_pack_.empty() ? writer_.element(instruction.target) : target_pack_,
                   writer_.stored(instruction.value, *tensor(instruction.target.name).dtype)));
  while (depth_ > before) close();
  if (!tests.empty()) close();
  if (exchanged_ == static_cast<int>(index)) context_.held.clear();
  exchanged_ = -1;
}

}  // namespace megalith::codegen
