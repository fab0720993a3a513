#include "megalith/codegen/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace megalith::codegen {

using loop::Expr;

namespace {

// The reductions of an expression; nullptr stands for one that is only evaluated sometimes.
void find_reductions(const Expr& expr, bool sometimes, std::vector<const Expr*>& found) {
  if (expr.kind == Expr::Kind::reduce) {
    found.push_back(sometimes ? nullptr : &expr);
    sometimes = true;  // and what is nested in it does not count as the one sum
  }
  const bool choice = expr.kind == Expr::Kind::call && expr.name == "if";
  for (const Expr& arg : expr.args) find_reductions(arg, sometimes || choice, found);
}

bool reads(const Expr& expr, const std::string& tensor) {
  if (expr.kind == Expr::Kind::subscript && expr.name == tensor) return true;
  return std::ranges::any_of(expr.args, [&](const Expr& arg) { return reads(arg, tensor); });
}

const Expr* only_reduction(const Expr& value) {
  std::vector<const Expr*> found;
  find_reductions(value, false, found);
  return found.size() == 1 ? found[0] : nullptr;
}

void replace_reduction(Expr& expr, const Expr& by) {
  if (expr.kind == Expr::Kind::reduce) {
    expr = by;
    return;
  }
  for (Expr& arg : expr.args) replace_reduction(arg, by);
}

}  // namespace

bool has_word(const std::string& text, const std::string& word) {
  auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || (!is_part(text[at - 1]) && text[at - 1] != '.');
    const size_t end = at + word.size();
    if (begins && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

bool sums_columns(const BodyContext& context, const ExpressionWriter& writer, const loop::Instruction& instruction,
                  const std::string& iname) {
  const Expr* reduce = only_reduction(instruction.value);
  if (!reduce || reduce->reduce != loop::ReduceOp::sum || reduce->inames.size() != 1 ||
      writer.natural(*reduce) != Type::f32 || writer.in_lanes(*reduce) ||
      reads(instruction.value, instruction.target.name))
    return false;
  if (reduce->args.size() > 1 && mentions(reduce->args[1], iname)) return false;
  const auto stored = writer.flat_index(instruction.target).coefficient(iname);
  if (!stored || *stored == 0) return false;

  bool contiguous = false, scattered = false;
  auto visit = [&](const Expr& expr, auto&& self) -> void {
    if (expr.kind == Expr::Kind::subscript && context.places.of.at(expr.name).where != Place::Where::scalar) {
      const auto stride = writer.flat_index(expr).coefficient(iname);
      if (!stride || (*stride != 0 && *stride != 1)) scattered = true;
      if (stride && *stride == 1) contiguous = true;
    }
    for (const Expr& arg : expr.args) self(arg, self);
  };
  visit(reduce->args[0], visit);
  if (!contiguous || scattered) return false;

  const ExpressionWriter::Reduction loop = writer.reductions(*reduce).front();
  return loop.guards.empty() && !has_word(loop.bounds.lower, iname) && !has_word(loop.bounds.upper, iname);
}

std::string write_columns(BodyContext& context, const ExpressionWriter& writer, const loop::Instruction& instruction,
                          const std::string& iname, const Bounds& loop) {
  const Expr& reduce = *only_reduction(instruction.value);
  const std::string& along = reduce.inames[0];
  const ExpressionWriter::Reduction reduction = writer.reductions(reduce).front();
  std::string step = accumulate(writer, reduce.args[0], "acc");
  std::vector<std::string> tests;
  for (const Expr& condition : reduction.conditions) tests.push_back(writer.write(condition, Type::truth, 4));
  if (!tests.empty()) step = fmt::format("{} ? {} : acc", fmt::join(tests, " && "), step);

  Expr value = instruction.value;
  replace_reduction(value, loop::make_name("total"));
  context.locals["total"] = Type::f32;
  const std::string& lambda = context.dialect.inline_lambda;
  const std::string along_parameter = has_word(step, along) ? "i64 " + along : "[[maybe_unused]] i64 " + along;
  return fmt::format(
      "sum_columns({}, {}, {}, {}, [&](f32 acc, {}, i64 {}) {} {{\n  return {};\n}}, [&](i64 {}, f32 total) {} {{\n"
      "  {} = {};\n}});",
      loop.lower, loop.upper, reduction.bounds.lower, reduction.bounds.upper, along_parameter, iname, lambda, step,
      iname, lambda, writer.element(instruction.target),
      writer.stored(value, context.places.of.at(instruction.target.name).dtype));
}

}  // namespace megalith::codegen
