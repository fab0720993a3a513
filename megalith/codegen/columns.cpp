#include "megalith/codegen/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/codegen/checks.h"

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

// Takes the checks out of a term that are the same for all columns; names stand in their place.
void take_checks(Expr& expr, const std::string& column, std::vector<Expr>& found) {
  if (is_checked_value(expr) && !mentions(expr, column)) {
    const auto same = std::ranges::find_if(found, [&](const Expr& one) { return same_expression(one, expr); });
    const auto number = same - found.begin();
    if (same == found.end()) found.push_back(expr);
    expr = loop::make_name(fmt::format("places.at[{}]", number));
    return;
  }
  if (expr.kind == Expr::Kind::reduce) return;
  // What only one side of a choice may evaluate stays there.
  const bool first_only =
      expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or");
  for (size_t i = 0; i < (first_only ? 1 : expr.args.size()); ++i) take_checks(expr.args[i], column, found);
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

bool sums_columns(const ExpressionContext& context, const ExpressionWriter& writer,
                  const loop::Instruction& instruction, const std::string& iname) {
  const Expr* reduce = only_reduction(instruction.value);
  if (!reduce || reduce->reduce != loop::ReduceOp::sum || reduce->inames.size() != 1 ||
      writer.natural(*reduce) != Type::f32 || reads(instruction.value, instruction.target.name))
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

std::string write_columns(ExpressionContext& context, const ExpressionWriter& writer,
                          const loop::Instruction& instruction, const std::string& iname, const Bounds& loop) {
  const Expr& reduce = *only_reduction(instruction.value);
  const std::string& along = reduce.inames[0];
  const ExpressionWriter::Reduction reduction = writer.reductions(reduce).front();
  Expr term = reduce.args[0];
  std::vector<Expr> checks;
  if (reduction.conditions.empty()) take_checks(term, iname, checks);  // others are behind conditions
  for (size_t i = 0; i < checks.size(); ++i) context.locals[fmt::format("places.at[{}]", i)] = Type::i64;
  std::string step = accumulate(writer, term, "acc");
  std::vector<std::string> tests;
  for (const Expr& condition : reduction.conditions) tests.push_back(writer.write(condition, Type::truth, 4));
  if (!tests.empty()) step = fmt::format("{} ? {} : acc", fmt::join(tests, " && "), step);

  Expr value = instruction.value;
  replace_reduction(value, loop::make_name("total"));
  context.locals["total"] = Type::f32;
  const std::string& lambda = context.dialect.inline_lambda;
  const auto along_parameter = [&](const std::string& body) {
    return has_word(body, along) ? "i64 " + along : "[[maybe_unused]] i64 " + along;
  };
  std::string places, places_parameter;
  if (!checks.empty()) {
    std::vector<std::string> values;
    for (const Expr& check : checks) values.push_back(writer.write(check, Type::i64));
    const std::string type = fmt::format("Places<{}>", checks.size()),
                      body = fmt::format("{}", fmt::join(values, ", "));
    places = fmt::format("[&]({}) {} {{\n  return {}{{{{{}}}}};\n}}, ", along_parameter(body), lambda, type, body);
    places_parameter = fmt::format(", const {}& places", type);
  }
  return fmt::format(
      "sum_columns({}, {}, {}, {}, {}[&](f32 acc, {}, i64 {}{}) {} {{\n  return {};\n}}, [&](i64 {}, f32 total) {} {{\n"
      "  {} = {};\n}});",
      loop.lower, loop.upper, reduction.bounds.lower, reduction.bounds.upper, places, along_parameter(step), iname,
      places_parameter, lambda, step, iname, lambda, writer.element(instruction.target),
      writer.stored(value, context.places.of.at(instruction.target.name).dtype));
}

}  // namespace megalith::codegen
