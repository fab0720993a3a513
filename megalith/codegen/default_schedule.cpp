// The heuristic that proposes a schedule for a body.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "megalith/codegen/body_schedule.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/independence.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::InameTag;
using loop::Instruction;
using loop::NestNode;

namespace {

class Proposal {
 public:
  Proposal(const graph::LoweredKernel& lowered, const loop::Kernel& checked, const Dialect& dialect)
      : lowered_(lowered), context_(checked, lowered.binding, dialect), writer_(context_) {
    take_layouts(context_, lowered);
  }

  std::string text() {
    LoopPath path;
    for (const NestNode& node : context_.nest) look_at_loop(node, path);
    return tag_lines();
  }

 private:
  const graph::LoweredKernel& lowered_;
  BodyContext context_;
  ExpressionWriter writer_;
  std::map<std::string, std::map<int, InameTag>> tags_;  // by iname and instruction

  bool is_gpu() const { return context_.dialect.worker == Level::block; }
  const Instruction& instruction(int index) const { return context_.kernel.instructions[static_cast<size_t>(index)]; }

  // Of several sums over one iname in one instruction the first that is not formed in order decides.
  void propose(int index, const std::string& iname, InameTag tag) {
    InameTag& known = tags_[iname].try_emplace(index, InameTag::loop).first->second;
    if (known == InameTag::loop) known = tag;
  }

  // One line for what is the same wherever an iname occurs, and one for each tag that holds in some instructions.
  std::string tag_lines() const {
    std::string everywhere, some;
    for (const std::string& iname : context_.kernel.inames()) {
      const auto found = tags_.find(iname);
      if (found == tags_.end()) continue;
      std::map<InameTag, std::vector<std::string>> instructions;
      for (const auto& [index, tag] : found->second) instructions[tag].push_back(instruction(index).id);
      for (const auto& [tag, ids] : instructions) {
        if (tag == InameTag::loop) continue;
        if (instructions.size() == 1)
          everywhere += fmt::format(" {} {}", iname, loop::tag_name(tag));
        else
          some += fmt::format("tag {} {} in {}\n", iname, loop::tag_name(tag), fmt::join(ids, " "));
      }
    }
    return (everywhere.empty() ? "" : "tag" + everywhere + "\n") + some;
  }

  void look_at_loop(const NestNode& node, LoopPath& path) {
    if (node.iname.empty()) return look_for_sums(node.instruction);
    path.push_back(&node);
    const InameTag tag = tag_of_loop(path);
    for (const int index : instructions_in(node)) propose(index, node.iname, tag);
    // Where the lanes of vectors are sums side by side, each sum is in order.
    const bool in_columns = tag == InameTag::vector && has_reduce(instruction(node.body[0].instruction).value);
    if (!in_columns)
      for (const NestNode& child : node.body) look_at_loop(child, path);
    path.pop_back();
  }

  InameTag tag_of_loop(const LoopPath& path) const {
    const NestNode& node = *path.back();
    if (std::ranges::any_of(node.body, [](const NestNode& child) { return child.instruction < 0; }))
      return InameTag::loop;
    const auto any_value = [&](const auto& holds) {
      return std::ranges::any_of(node.body,
                                 [&](const NestNode& child) { return holds(instruction(child.instruction).value); });
    };
    if (!is_gpu()) {
      if (any_value([&](const Expr& value) { return has_sum_side_by_side(value, ""); })) return InameTag::loop;
      return why_not_in_vectors(context_, writer_, path, lowered_.tiled).empty() ? InameTag::vector : InameTag::loop;
    }
    if (!why_not_in_turns(context_, writer_, path).empty()) return InameTag::loop;
    const bool for_warps = any_value([&](const Expr& value) { return has_sum_side_by_side(value, node.iname); });
    return for_warps ? InameTag::warp : InameTag::thread_0;
  }

  // A reduction over what lies side by side, in which `iname` occurs if there is one.
  bool has_sum_side_by_side(const Expr& expr, const std::string& iname) const {
    if (expr.kind == Expr::Kind::reduce && (iname.empty() || mentions(expr, iname)) &&
        reads_side_by_side(context_, writer_, expr))
      return true;
    return std::ranges::any_of(expr.args, [&](const Expr& arg) { return has_sum_side_by_side(arg, iname); });
  }

  void look_for_sums(int index) {
    look_for_sums(index, instruction(index).target);
    look_for_sums(index, instruction(index).value);
    if (instruction(index).condition) look_for_sums(index, *instruction(index).condition);
  }

  void look_for_sums(int index, const Expr& expr) {
    if (expr.kind == Expr::Kind::reduce)
      for (const std::string& iname : expr.inames)
        propose(index, iname, iname == expr.inames.back() ? tag_of_sum(expr) : InameTag::loop);
    for (const Expr& arg : expr.args) look_for_sums(index, arg);
  }

  // A sum in order waits for each addition. So its terms go to lanes: on a CPU where what they read lies side by side, or the
  // compiler could not load them at once; on a GPU always.
  InameTag tag_of_sum(const Expr& reduce) const {
    const bool side_by_side = reads_side_by_side(context_, writer_, reduce), is_single = reduce.inames.size() == 1;
    if (!is_gpu()) return side_by_side ? InameTag::vector : InameTag::loop;
    const bool is_sum = reduce.reduce == loop::ReduceOp::sum && writer_.natural(reduce) == Type::f32;
    return side_by_side || (is_single && is_sum) ? InameTag::lane : is_single ? InameTag::thread_0 : InameTag::loop;
  }
};

}  // namespace

std::string default_schedule(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect) {
  loop::Kernel checked = bound;
  add_checks(checked);
  return Proposal(lowered, checked, dialect).text();
}

}  // namespace megalith::codegen
