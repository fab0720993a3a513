#include "megalith/codegen/independence.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "megalith/codegen/checks.h"
#include "megalith/codegen/columns.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

using loop::Expr;
using loop::Instruction;
using loop::NestNode;

namespace {

const Instruction& instruction_of(const BodyContext& context, const NestNode& node) {
  return context.kernel.instructions[static_cast<size_t>(node.instruction)];
}

// The first subscript of `expr` into one of `targets` that is not the one written there.
const Expr* read_elsewhere(const Expr& expr, const std::map<std::string, const Expr*>& targets) {
  if (expr.kind == Expr::Kind::subscript)
    if (const auto target = targets.find(expr.name); target != targets.end() && !same_expression(*target->second, expr))
      return &expr;
  for (const Expr& arg : expr.args)
    if (const Expr* found = read_elsewhere(arg, targets)) return found;
  return nullptr;
}

// The number of iterations of a loop that begins at 0.
std::optional<int64_t> fixed_length(const BodyContext& context, const std::string& iname) {
  const loop::LoopBounds bounds = loop::iname_bounds(context.domains, iname);
  if (bounds.lower != std::vector<std::string>{"0"} || bounds.upper.size() != 1) return std::nullopt;
  const int64_t length = std::atoll(bounds.upper[0].c_str());
  return fmt::format("{}", length) == bounds.upper[0] ? std::optional(length) : std::nullopt;
}

// Whether no iteration of the loop touches what another one writes: every tensor written in it is written at places that
// move with the iname, and read only where it is written. `sums`: such iterations may be long, with reductions.
std::string why_dependent(const BodyContext& context, const ExpressionWriter& writer, const NestNode& node, bool sums) {
  for (const NestNode& child : node.body)
    if (child.instruction < 0) return fmt::format("the loop over {} is inside of it", child.iname);
  std::map<std::string, const Expr*> targets;
  for (const NestNode& child : node.body) {
    const Instruction& instruction = instruction_of(context, child);
    const Expr& target = instruction.target;
    if (!sums && has_reduce(instruction.value)) return fmt::format("\"{}\" sums", instruction.id);
    const Place& place = context.places.of.at(target.name);
    if (place.where == Place::Where::scalar) {
      if (!sums && !place.defined_by_write)
        return fmt::format("\"{}\" writes {}, which has a value before", instruction.id, print(target));
      continue;
    }
    const auto stride = writer.flat_index(target).coefficient(node.iname);
    if (!stride || *stride == 0)
      return fmt::format("iterations may write the same element of {} (\"{}\")", target.name, instruction.id);
    const auto [known, fresh] = targets.emplace(target.name, &target);
    if (!fresh && !same_expression(*known->second, target)) {
      // Two places in one tensor, as the two halves of a rotation: apart if they differ by more than the loop is long.
      loop::LinearSum difference = writer.flat_index(target).add(writer.flat_index(*known->second), -1);
      const auto length = fixed_length(context, node.iname);
      if (!length || !difference.terms.empty() || std::abs(difference.constant) < *length * std::abs(*stride))
        return fmt::format("{} and {} may be one element in two iterations", print(*known->second), print(target));
    }
  }
  for (const NestNode& child : node.body) {
    const Instruction& instruction = instruction_of(context, child);
    const Expr* read = read_elsewhere(instruction.value, targets);
    if (!read && instruction.condition) read = read_elsewhere(*instruction.condition, targets);
    if (read) return fmt::format("\"{}\" reads {}, which another iteration may write", instruction.id, print(*read));
  }
  return "";
}

}  // namespace

bool has_reduce(const Expr& expr) {
  return expr.kind == Expr::Kind::reduce || std::ranges::any_of(expr.args, has_reduce);
}

std::string why_not_in_turns(const BodyContext& context, const ExpressionWriter& writer, const LoopPath& path) {
  const NestNode& node = *path.back();
  for (const NestNode& child : node.body) {
    if (child.instruction < 0) return fmt::format("the loop over {} is inside of it", child.iname);
    const Expr& target = instruction_of(context, child).target;
    const Place& place = context.places.of.at(target.name);
    const bool own = place.depth >= static_cast<int>(path.size());
    if (place.where == Place::Where::scalar && !own)
      return fmt::format("all iterations write the one value {}", print(target));
    if (place.where == Place::Where::scratch && own)
      return fmt::format("{} is memory of all threads that each iteration uses anew", target.name);
  }
  return why_dependent(context, writer, node, true);
}

std::string why_not_in_vectors(const BodyContext& context, const ExpressionWriter& writer, const LoopPath& path,
                               const std::vector<std::string>& tiled) {
  const NestNode& node = *path.back();
  const std::string why = why_dependent(context, writer, node, false);
  if (why.empty() || node.body.size() != 1 || node.body[0].instruction < 0) return why;
  const int index = node.body[0].instruction;
  const Instruction& instruction = context.kernel.instructions[static_cast<size_t>(index)];
  ExpressionWriter inside(context);
  std::vector<std::string> outer;
  for (const NestNode* loop : path) outer.push_back(loop->iname);
  inside.set_scope(outer);
  if (!sums_columns(context, inside, instruction, node.iname)) return why;
  // The whole loop is one call: nothing is tested in it.
  LoopHeaders headers(context, tiled);
  isl::set implemented = loop::parameter_context(context.kernel);
  outer.clear();
  bool may_be_empty = false;
  for (const NestNode* loop : path) {
    const LoopHeader header = headers.enter(*loop, outer, implemented);
    implemented = header.inside;
    may_be_empty = header.may_be_empty;
    outer.push_back(loop->iname);
  }
  if (!headers.conditions_of(index).empty() ||
      !loop::guards(context.domains.over(instruction.within), implemented).empty() ||
      (may_be_empty && has_check(instruction.value)))
    return fmt::format("\"{}\" sums behind a condition", instruction.id);
  return "";
}

bool reads_side_by_side(const BodyContext& context, const ExpressionWriter& writer, const Expr& reduce) {
  if (reduce.reduce == loop::ReduceOp::argmax || writer.natural(reduce.args[0]) != Type::f32) return false;
  bool contiguous = false, scattered = false;
  const auto visit = [&](const Expr& expr, auto&& self) -> void {
    if (expr.kind == Expr::Kind::subscript && context.places.of.at(expr.name).where != Place::Where::scalar) {
      const auto stride = writer.flat_index(expr).coefficient(reduce.inames.back());
      if (!stride || (*stride != 0 && *stride != 1)) scattered = true;
      if (stride && *stride == 1) contiguous = true;
    }
    for (const Expr& arg : expr.args) self(arg, self);
  };
  for (const Expr& arg : reduce.args) {
    if (has_reduce(arg)) return false;
    visit(arg, visit);
  }
  return contiguous && !scattered;
}

}  // namespace megalith::codegen
