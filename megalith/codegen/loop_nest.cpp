// The nest of a scheduled kernel as loops, conditions and statements.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>
#include <utility>

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

void LoopEmitter::emit(std::span<const NestNode> nodes, const Inames& outer, const isl::set& implemented) {
  for (size_t i = 0; i < nodes.size();) {
    if (!is_emulated_ || scope_ == kThread || scope_of(nodes[i]) == scope_) {
      emit_node(nodes[i++], outer, implemented);
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

void LoopEmitter::write_barrier(bool of_warp) {
  if (is_emulated_)
    line(of_warp ? "// barrier of a warp" : "// barrier");
  else if (is_gpu_)
    line(of_warp ? "__syncwarp();" : "__syncthreads();");
}

void LoopEmitter::emit_loop(const NestNode& node, const Inames& outer, const isl::set& implemented) {
  if (!axis_of(node)) return NestWriter::emit_loop(node, outer, implemented);
  const size_t before = blocks_.size();
  emit_axes(node, outer, implemented);
  while (blocks_.size() > before) close();
}

// All threads walk a loop with a barrier in it, and an unrolled one has as many iterations as it can.
LoopForm LoopEmitter::form_of(const NestNode& node) const {
  return {.is_whole = keeps_elements(node),
          .takes_conditions = scope_of(node) == kThread && !is_unrolled(node.iname) &&
                              loop::tag_of(kernel_, node.iname) != InameTag::vector};
}

bool LoopEmitter::emit_at_once(const NestNode& node, const LoopHeader& header, const Bounds& bounds,
                               const Inames& inames) {
  return loop::tag_of(kernel_, node.iname) == InameTag::vector &&
         (emit_square(node, header, bounds, inames) || emit_packs(node, header, bounds, inames));
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

std::string LoopEmitter::pragma_of(const NestNode& node) const {
  if (context_.unrolled.contains(node.iname)) return context_.dialect.unroll;
  return !is_gpu_ && loop::tag_of(kernel_, node.iname) == InameTag::vector ? context_.dialect.independent : "";
}

void LoopEmitter::begin_statement(int index) {
  exchange_lanes(static_cast<size_t>(index));
  context_.whole.clear();
  for (const std::string& iname : unrolled_)
    if (is_gpu_ && keeps_elements(instruction(index), iname)) context_.whole.insert(iname);
}

void LoopEmitter::store(const loop::Instruction& instruction) {
  line(fmt::format("{} = {};", target_pack_.empty() ? writer_.element(instruction.target) : target_pack_,
                   writer_.stored(instruction.value, *tensor(instruction.target.name).dtype)));
}

void LoopEmitter::end_statement(int index) {
  if (exchanged_ == index) context_.held.clear();
  exchanged_ = -1;
}

}  // namespace megalith::codegen
