#include "megalith/codegen/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/codegen/arguments.h"
#include "megalith/loop/access.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/text.h"
#include "megalith/loop/value_range.h"

namespace megalith::codegen {

using loop::Expr;

namespace {

bool is_check(const Expr& expr) {
  return expr.kind == Expr::Kind::call &&
         (expr.name == "inside" || expr.name == "is_inside" || expr.name == "nonzero" || expr.name == "is_nonzero");
}

// As the kernel has it: the words of a message.
Expr without_checks(const Expr& expr) {
  if (is_check(expr)) return without_checks(expr.args[0]);
  Expr result = expr;
  for (Expr& arg : result.args) arg = without_checks(arg);
  return result;
}

bool is_narrow(DType dtype) { return !dtype_is_float(dtype) && dtype != DType::i64; }

class CheckAdder {
 public:
  explicit CheckAdder(loop::Kernel& kernel) : kernel_(kernel), domains_(kernel) {}

  std::vector<CheckText> add() {
    for (loop::Instruction& instruction : kernel_.instructions) {
      tests_of_target_.clear();
      loop::rewrite_expressions(instruction, [&](Expr& expr, const loop::Place& place) {
        if (expr.kind == Expr::Kind::subscript) check_subscripts(expr, place);
        if (expr.kind == Expr::Kind::call && (expr.name == "//" || expr.name == "mod")) check_divisor(expr, place);
      });
      narrow(instruction);
      // Inner subscripts of the target come first.
      for (Expr& test : tests_of_target_) {
        if (instruction.condition)
          instruction.condition = loop::make_call("and", {std::move(*instruction.condition), std::move(test)});
        else
          instruction.condition = std::move(test);
      }
    }
    return std::move(texts_);
  }

 private:
  loop::Kernel& kernel_;
  loop::Domains domains_;
  std::vector<CheckText> texts_;
  std::vector<Expr> tests_of_target_;  // of the instruction in hand

  Expr number(std::string what, const Expr& value) {
    texts_.push_back({std::move(what), loop::print(without_checks(value))});
    return loop::make_integer(static_cast<int64_t>(texts_.size()) - 1);
  }

  // What check_bounds() has proved is what it can write down.
  bool is_proved(const Expr& subscript, const Expr& extent, const loop::Place& place) const {
    const isl::space space = loop::place_domain(domains_, place).space();
    if (loop::to_isl_aff(space, subscript) && loop::to_isl_aff(space, extent)) return true;
    const auto size = loop::constant_value(extent);
    return size && loop::value_range(kernel_, domains_, subscript, place).is_within(0, *size - 1);
  }

  void check_subscripts(Expr& access, const loop::Place& place) {
    const loop::TensorArgument& tensor = *kernel_.find_tensor(access.name);
    const std::string what =
        fmt::format("{} {}", place.is_target ? "writes" : "reads", loop::print(without_checks(access)));
    for (size_t d = 0; d < access.args.size(); ++d) {
      Expr& subscript = access.args[d];
      const Expr& extent = tensor.shape[d];
      if (is_proved(subscript, extent, place)) continue;
      const Expr check = number(what, subscript);
      // What is written goes nowhere else instead.
      if (place.in_target) tests_of_target_.push_back(loop::make_call("is_inside", {subscript, extent, check}));
      if (!place.is_target) subscript = loop::make_call("inside", {std::move(subscript), extent, check});
    }
  }

  void check_divisor(Expr& division, const loop::Place& place) {
    Expr& value = division.args[1];
    if (value.kind == Expr::Kind::number && value.number != 0) return;
    const loop::ValueRange range = loop::value_range(kernel_, domains_, value, place);
    if (range.lo && range.hi && (*range.lo > 0 || *range.hi < 0)) return;
    const Expr check = number("divides " + loop::print(without_checks(division)), value);
    if (place.in_target) tests_of_target_.push_back(loop::make_call("is_nonzero", {value, check}));
    value = loop::make_call("nonzero", {std::move(value), check});
  }

  void narrow(loop::Instruction& instruction) {
    const DType dtype = *kernel_.find_tensor(instruction.target.name)->dtype;
    if (!is_narrow(dtype)) return;
    loop::Place place;
    place.inames = instruction.within;
    if (instruction.condition) place.guards.push_back({&*instruction.condition, true});
    const loop::ValueRange range = loop::value_range(kernel_, domains_, instruction.value, place),
                           type = loop::dtype_range(dtype);
    if (range.is_within(*type.lo, *type.hi)) return;
    instruction.value = loop::make_call(std::string(dtype_name(dtype)), {std::move(instruction.value)});
  }
};

}  // namespace

std::vector<CheckText> add_checks(loop::Kernel& kernel) { return CheckAdder(kernel).add(); }

std::vector<CheckText> add_checks_where_needed(loop::Kernel& kernel) {
  const auto is_written_narrow = [](const loop::TensorArgument& tensor) {
    return tensor.role != loop::Role::input && is_narrow(*tensor.dtype);
  };
  bool is_needed = std::ranges::any_of(kernel.tensors, is_written_narrow);
  for (const loop::Instruction& instruction : kernel.instructions)
    loop::visit_expressions(instruction, [&](const Expr& expr, const loop::Place&) {
      const bool divides = expr.kind == Expr::Kind::call && (expr.name == "//" || expr.name == "mod");
      is_needed = is_needed || (divides && expr.args[1].kind != Expr::Kind::number) ||
                  (expr.kind == Expr::Kind::subscript && std::ranges::any_of(expr.args, loop::reads_tensor));
    });
  return is_needed ? add_checks(kernel) : std::vector<CheckText>();
}

bool is_check_of_target(const Expr& condition) {
  return condition.kind == Expr::Kind::call && (condition.name == "is_inside" || condition.name == "is_nonzero");
}

bool is_checked_value(const Expr& expr) { return is_check(expr) && !is_check_of_target(expr); }

bool has_check(const Expr& expr) { return is_check(expr) || std::ranges::any_of(expr.args, has_check); }

std::vector<CheckText> checks_of_operands(const graph::LoweredKernel& lowered) {
  // Weights in i8 say what something is, not where.
  const auto says_where = [](const loop::TensorArgument* tensor) {
    return tensor->role != loop::Role::output && (tensor->dtype == DType::i32 || tensor->dtype == DType::i64);
  };
  const std::vector<const loop::TensorArgument*> operands = operands_of(lowered);
  std::vector<CheckText> texts;
  if (std::ranges::any_of(operands, says_where))
    for (const loop::TensorArgument* tensor : operands) texts.push_back({"follows " + tensor->name, tensor->name});
  return texts;
}

}  // namespace megalith::codegen
