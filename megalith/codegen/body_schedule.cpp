#include "megalith/codegen/body_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/independence.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/codegen/task_regions.h"
#include "megalith/loop/check.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/steps.h"

namespace megalith::codegen {

using loop::Expr;
using loop::InameTag;
using loop::Instruction;
using loop::Kernel;
using loop::NestNode;

namespace {

bool is_plain(InameTag tag) { return tag == InameTag::loop || tag == InameTag::task; }

Kernel without_tags(Kernel kernel) {
  kernel.tags.clear();
  for (Instruction& instruction : kernel.instructions) instruction.tags.clear();
  return kernel;
}

// An operator's text may say what becomes of its loops; of a body the schedule alone does.
Kernel of_tasks(Kernel kernel) {
  std::erase_if(kernel.tags, [](const auto& tag) { return tag.second != InameTag::task; });
  for (Instruction& instruction : kernel.instructions) instruction.tags.clear();
  return kernel;
}

// A body is called as it was before: sizes and operands are the graph's, tasks are cut along the same inames.
void check_same_call(const Kernel& origin, const Kernel& kernel, const std::vector<std::string>& tiled) {
  const std::string prefix = loop::message_prefix(origin.name);
  MEGALITH_CHECK(kernel.parameters.size() == origin.parameters.size() && kernel.assumptions == origin.assumptions,
                 "{} the sizes of a body are the graph's: a schedule can neither fix nor assume any", prefix);
  const auto is_temporary = [](const loop::TensorArgument& tensor) { return tensor.role == loop::Role::temporary; };
  for (const loop::TensorArgument& tensor : kernel.tensors) {
    if (is_temporary(tensor)) {
      MEGALITH_CHECK(tensor.space == loop::Space::automatic && tensor.storage.empty(),
                     "{} where the temporary {} of a body stands follows from its loops: leave space and alias out",
                     prefix, tensor.name);
      continue;
    }
    const loop::TensorArgument* before = origin.find_tensor(tensor.name);
    const auto same_shape = [&] {
      return std::ranges::equal(before->shape, tensor.shape, loop::same_expression) && before->dtype == tensor.dtype;
    };
    MEGALITH_CHECK(before && before->role == tensor.role && same_shape(),
                   "{} the operand {} of a body must stay as the graph has it", prefix, tensor.name);
  }
  MEGALITH_CHECK(std::ranges::count_if(kernel.tensors, std::not_fn(is_temporary)) ==
                     std::ranges::count_if(origin.tensors, std::not_fn(is_temporary)),
                 "{} an operand of the body is gone", prefix);
  for (const Instruction& instruction : kernel.instructions)
    MEGALITH_CHECK(!instruction.is_behind_barrier,
                   "{} a body is one function, and \"{}\" is behind a barrier over all workers: leave the barrier out",
                   prefix, instruction.id);
  const std::vector<std::string> inames = kernel.inames();
  for (const std::string& iname : tiled)
    MEGALITH_CHECK(std::ranges::find(inames, iname) != inames.end(),
                   "{} {} is cut into tasks and must stay: take other inames, or cut it otherwise in plan.txt", prefix,
                   iname);
}

// What tags ask of a body.
class TagCheck {
 public:
  TagCheck(const graph::LoweredKernel& lowered, const Kernel& checked, const Dialect& dialect)
      : lowered_(lowered),
        context_(checked, lowered.binding, dialect),
        writer_(context_),
        prefix_(loop::message_prefix(lowered.kernel.name)) {
    take_layouts(context_, lowered);
  }

  void run() {
    for (const Instruction& instruction : context_.kernel.instructions) {
      look_for_sums(instruction, instruction.target);
      look_for_sums(instruction, instruction.value);
      if (instruction.condition) look_for_sums(instruction, *instruction.condition);
    }
    LoopPath path;
    for (const NestNode& node : context_.nest) look_at(node, path);
  }

 private:
  const graph::LoweredKernel& lowered_;
  BodyContext context_;
  ExpressionWriter writer_;
  std::string prefix_;

  bool is_gpu() const { return context_.dialect.worker == Level::block; }

  void look_at(const NestNode& node, LoopPath& path) {
    if (node.iname.empty()) return;
    path.push_back(&node);
    check_loop(path);
    for (const NestNode& child : node.body) look_at(child, path);
    path.pop_back();
  }

  void check_loop(const LoopPath& path) const {
    const std::string& iname = path.back()->iname;
    const InameTag tag = tag_of_loop(context_.kernel, *path.back());
    for (const int index : instructions_in(*path.back())) {
      const InameTag other = writer_.tag_in(index, iname);
      MEGALITH_CHECK(other == tag, "{} \"{}\" and others share a loop over {}, which cannot be tagged {} and {}",
                     prefix_, context_.kernel.instructions[static_cast<size_t>(index)].id, iname, loop::tag_name(other),
                     loop::tag_name(tag));
    }
    if (is_plain(tag) || tag == InameTag::unroll) return;
    const bool is_dealt = tag == InameTag::thread_0 || tag == InameTag::warp;
    const bool is_known = is_dealt || (!is_gpu() && (tag == InameTag::vector || tag == InameTag::lane));
    MEGALITH_CHECK(is_known, "{} the loop over {} cannot be tagged {} in a body for a {}: it can be for, unr{}",
                   prefix_, iname, loop::tag_name(tag), is_gpu() ? "GPU" : "CPU", is_gpu() ? ", l.0 or w" : " or vec");
    // A worker of a CPU is one thread, whose loops they are.
    const std::string why = is_gpu()                  ? why_not_in_turns(context_, writer_, path)
                            : tag == InameTag::vector ? why_not_in_vectors(context_, writer_, path, lowered_.tiled)
                                                      : "";
    MEGALITH_CHECK(why.empty(),
                   "{} the loop over {} cannot be tagged {}: {}; leave it a loop (for), or change that first", prefix_,
                   iname, loop::tag_name(tag), why);
  }

  void check_sum(const Instruction& instruction, const Expr& reduce) const {
    for (const std::string& iname : reduce.inames) {
      const InameTag tag = loop::tag_of(context_.kernel, instruction, iname);
      if (is_plain(tag)) continue;
      MEGALITH_CHECK(iname == reduce.inames.back(),
                     "{} {} is tagged {} and is not the innermost iname of {} over ({}) in \"{}\", which is {}",
                     prefix_, iname, loop::tag_name(tag), name_of(reduce), fmt::join(reduce.inames, ", "),
                     instruction.id, reduce.inames.back());
      MEGALITH_CHECK(tag == InameTag::thread_0 || tag == InameTag::lane || tag == InameTag::vector,
                     "{} {} cannot be tagged {}, since \"{}\" has {} over it: it can be for, l.0, lane or vec", prefix_,
                     iname, loop::tag_name(tag), instruction.id, name_of(reduce));
      const bool has_lanes = reduce.reduce != loop::ReduceOp::argmax && writer_.natural(reduce.args[0]) == Type::f32;
      MEGALITH_CHECK(
          has_lanes || tag == InameTag::thread_0,
          "{} {} cannot be tagged {}: partial results are of sum, max and min of floats, and \"{}\" has {}{} "
          "over it; it can be for or l.0",
          prefix_, iname, loop::tag_name(tag), instruction.id, name_of(reduce),
          reduce.reduce == loop::ReduceOp::argmax ? "" : " of whole numbers");
    }
  }

  void look_for_sums(const Instruction& instruction, const Expr& expr) const {
    if (expr.kind == Expr::Kind::reduce) check_sum(instruction, expr);
    for (const Expr& arg : expr.args) look_for_sums(instruction, arg);
  }

  static std::string_view name_of(const Expr& reduce) {
    switch (reduce.reduce) {
      case loop::ReduceOp::sum: return "a sum";
      case loop::ReduceOp::max: return "a max";
      case loop::ReduceOp::min: return "a min";
      case loop::ReduceOp::argmax: return "an argmax";
    }
    return "";
  }
};

}  // namespace

loop::Kernel scheduled_body(const Kernel& bound, const std::string& schedule) {
  Kernel kernel = of_tasks(bound);
  std::istringstream lines(schedule);
  for (std::string line; std::getline(lines, line);)
    if (!loop::step_words(line).empty()) kernel = loop::run_step(kernel, line, {});
  return kernel.rules.empty() ? kernel : loop::without_rules(kernel);
}

loop::Schedule checked_schedule(const graph::LoweredKernel& lowered, const Kernel& bound, const Dialect& dialect,
                                const std::string& text) {
  const std::string meaning = loop::print(without_tags(bound));
  const auto check = [&](const Kernel& with_rules) {
    Kernel kernel = loop::without_rules(with_rules);
    check_same_call(bound, kernel, lowered.tiled);
    if (loop::print(without_tags(kernel)) != meaning) {
      loop::check_names(kernel);
      loop::check_bounds(kernel);
      check_same_regions(bound, kernel, lowered.tiled);
    }
    check_names_of_body(kernel);
    add_checks(kernel);
    TagCheck(lowered, kernel, dialect).run();
  };
  return loop::Schedule::parse(of_tasks(bound), text, {}, check);
}

}  // namespace megalith::codegen
