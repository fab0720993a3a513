#include "megalith/codegen/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/loop/function.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/optimize/layout.h"

namespace megalith::codegen {

using loop::Expr;

namespace {

// Precedences of C++, weakest first.
enum Precedence { kAny, kChoice, kOr, kAnd, kEqual, kCompare, kAdd, kMultiply, kUnary, kPrimary };

std::string float_literal(double value) {
  const auto narrow = static_cast<float>(value);
  if (std::isinf(narrow)) return narrow > 0 ? "kInfinity" : "-kInfinity";
  std::string text = fmt::format("{}", narrow);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

bool is_comparison(const std::string& name) {
  return name == "<" || name == "<=" || name == ">" || name == ">=" || name == "==" || name == "!=";
}

bool is_logic(const std::string& name) { return name == "and" || name == "or" || name == "not"; }

}  // namespace

std::string_view type_name(Type type) {
  switch (type) {
    case Type::f32: return "f32";
    case Type::i32: return "i32";
    case Type::i64: return "i64";
    case Type::truth: return "bool";
  }
  return "";
}

std::string element_type(DType dtype) { return std::string(dtype_name(dtype)); }

ExpressionContext::ExpressionContext(const loop::Kernel& kernel_, const Dialect& dialect_)
    : kernel(kernel_), dialect(dialect_), domains(kernel) {}

BodyContext::BodyContext(const loop::Kernel& bound, const loop::Binding& binding_, const Dialect& dialect_)
    : ExpressionContext(bound, dialect_), binding(binding_), nest(loop::build_nest(kernel)) {
  places = plan_places(kernel, binding.sizes, nest, dialect.worker == Level::thread);
}

bool ExpressionContext::is_nonnegative(const std::string& name) const {
  if (kernel.is_parameter(name)) return true;
  if (std::ranges::find(domains.inames(), name) == domains.inames().end()) return false;
  const std::vector<std::string> lower = loop::iname_bounds(domains, name).lower;
  return std::ranges::any_of(
      lower, [](const std::string& bound) { return bound.find_first_not_of("0123456789") == std::string::npos; });
}

void take_layouts(BodyContext& context, const graph::LoweredKernel& lowered) {
  for (size_t i = 0; i < lowered.layouts.size(); ++i) {
    Place& place = context.places.of.at(lowered.op->operands[i].name);
    if (lowered.layouts[i] == graph::Layout::panels) place.together = optimize::panel_columns(place.dtype);
  }
}

void check_names_of_body(const loop::Kernel& kernel) {
  const auto check = [&](const std::string& name, const char* what) {
    MEGALITH_CHECK(!is_taken_name(name), "[{}] the {} \"{}\" has a meaning in generated code: give it another name",
                   kernel.name, what, name);
  };
  for (const std::string& iname : kernel.inames()) check(iname, "iname");
  for (const loop::Parameter& parameter : kernel.parameters) check(parameter.name, "size");
  for (const loop::Attribute& attribute : kernel.attributes) check(attribute.name, "attribute");
}

std::string join_bounds(std::vector<std::string> bounds, const char* combine) {
  auto is_number = [](const std::string& text) { return text.find_first_not_of("-0123456789") == std::string::npos; };
  std::optional<int64_t> number;
  for (const std::string& bound : bounds) {
    if (!is_number(bound)) continue;
    const int64_t value = std::stoll(bound);
    number = !number ? value : std::string_view(combine) == "min" ? std::min(*number, value) : std::max(*number, value);
  }
  std::erase_if(bounds, is_number);
  if (number) bounds.insert(bounds.begin(), fmt::format("{}", *number));
  std::string result = bounds.back();
  for (size_t i = bounds.size() - 1; i-- > 0;) result = fmt::format("{}({}, {})", combine, bounds[i], result);
  return result;
}

loop::InameTag ExpressionWriter::tag_in(int instruction, const std::string& iname) const {
  return loop::tag_of(context_.kernel, context_.kernel.instructions[static_cast<size_t>(instruction)], iname);
}

Type ExpressionWriter::natural(const Expr& expr) const {
  switch (expr.kind) {
    case Expr::Kind::number: return expr.is_integer ? Type::i64 : Type::f32;
    case Expr::Kind::name: {
      if (const auto local = context_.locals.find(expr.name); local != context_.locals.end()) return local->second;
      return context_.kernel.is_attribute(expr.name) ? Type::f32 : Type::i64;
    }
    case Expr::Kind::subscript: {
      const DType dtype = context_.places.of.at(expr.name).dtype;
      return dtype == DType::i32 || dtype == DType::i8 ? Type::i32 : dtype == DType::i64 ? Type::i64 : Type::f32;
    }
    case Expr::Kind::reduce:
      if (expr.reduce == loop::ReduceOp::argmax) return Type::i64;
      return natural(expr.args[0]) == Type::f32 ? Type::f32 : Type::i64;
    case Expr::Kind::call: break;
  }
  const std::string& name = expr.name;
  if (loop::is_dtype_name(name))
    return name == "i32" || name == "i8" ? Type::i32 : name == "i64" ? Type::i64 : Type::f32;
  if (is_comparison(name) || is_logic(name) || name == "is_inside" || name == "is_nonzero") return Type::truth;
  if (name == "inside") return Type::i64;
  if (name == "nonzero") return natural(expr.args[0]) == Type::f32 ? Type::f32 : Type::i64;
  static const std::set<std::string> of_arguments = {"+", "-", "*", "//", "mod", "neg", "min", "max", "abs", "if"};
  if (!of_arguments.contains(name)) return Type::f32;
  for (size_t i = name == "if" ? 1 : 0; i < expr.args.size(); ++i)
    if (natural(expr.args[i]) == Type::f32) return Type::f32;
  return Type::i64;
}

// Those of prelude.h drop a NaN in the first argument.
std::string ExpressionWriter::word_of(const std::string& function, Type type) const {
  if (!context_.dialect.is_literal || type != Type::f32) return function;
  return function == "max" ? "larger" : function == "min" ? "smaller" : function;
}

ExpressionWriter::Text ExpressionWriter::convert(Text text, Type want) const {
  if (text.type == want || (text.type == Type::truth && want != Type::f32)) return text;
  if (want == Type::truth)
    return {(text.precedence <= kEqual ? "(" + text.text + ")" : text.text) + " != 0", kEqual, Type::truth};
  // C++ leaves open what a float becomes that no whole number of the type is near to.
  const bool ends_at_edges = text.type == Type::f32 && want != Type::f32;
  return {fmt::format("{}{}({})", ends_at_edges ? "to_" : "", type_name(want), text.text), kPrimary, want};
}

std::string ExpressionWriter::write(const Expr& expr, Type want, int precedence) const {
  Text text;
  if (expr.kind == Expr::Kind::number && want == Type::f32) {
    const std::string literal = float_literal(expr.number);
    text = {literal, literal[0] == '-' ? kUnary : kPrimary, Type::f32};
  } else {
    text = convert(natural_text(expr), want);
  }
  return text.precedence < precedence ? "(" + text.text + ")" : text.text;
}

std::string ExpressionWriter::text_of_element(const Expr& subscript) const {
  const Place& place = context_.places.of.at(subscript.name);
  if (place.where == Place::Where::scalar) return place.text;
  std::string text = place.text;
  if (const size_t at = text.find("{}"); at != std::string::npos)
    text.replace(at, 2, write(subscript.args[*place.lanes_axis], Type::i64));
  const loop::LinearSum index = flat_index(subscript);
  if (index.terms.size() == 1 && index.terms[0].coefficient == 1 && index.constant == 0)  // of whatever integer type
    return fmt::format("{}[{}]", text, write(index.terms[0].atom, natural(index.terms[0].atom)));
  return fmt::format("{}[{}]", text, write(index));
}

std::string ExpressionWriter::held_key(const Expr& subscript) const {
  const std::optional<size_t> lanes = context_.places.of.at(subscript.name).lanes_axis;
  return text_of_element(subscript) + (lanes ? "@" + write(subscript.args[*lanes], Type::i64) : "");
}

std::string ExpressionWriter::element(const Expr& subscript) const {
  if (!context_.held.empty())
    if (const auto held = context_.held.find(held_key(subscript)); held != context_.held.end()) return held->second;
  return text_of_element(subscript);
}

std::string ExpressionWriter::stored(const Expr& value, DType dtype) const {
  if (dtype == DType::bf16 || dtype == DType::f16)
    return fmt::format("to_{}({})", dtype_name(dtype), write(value, Type::f32));
  if (dtype == DType::i8) return fmt::format("static_cast<i8>({})", write(value, Type::i32));
  return write(value, dtype == DType::f32 ? Type::f32 : dtype == DType::i32 ? Type::i32 : Type::i64);
}

namespace {
// As panel::index() has it, in the language of loop kernels.
loop::LinearSum index_in_panels(const Expr& row, const Expr& column, int64_t columns, int together) {
  auto call = [](const char* name, const Expr& a, int64_t b) {
    return loop::make_call(name, {a, loop::make_integer(b)});
  };
  loop::LinearSum index;
  index.add(loop::sum_of(call("//", row, panel::kRows)), panel::panel_elements(columns, together));
  index.add(loop::sum_of(call("mod", row, panel::kRows)), together);
  if (together == 1) {
    index.add(loop::sum_of(column), panel::kRows);
    return index;
  }
  index.add(loop::sum_of(call("//", column, together)), int64_t{together} * panel::kRows);
  index.add(loop::sum_of(call("mod", column, together)), 1);
  return index;
}
}  // namespace

loop::LinearSum ExpressionWriter::flat_index(const Expr& subscript) const {
  const Place& place = context_.places.of.at(subscript.name);
  if (place.together > 0)
    return index_in_panels(subscript.args[0], subscript.args[1], *loop::constant_value(place.sizes[1]), place.together);
  // ptxas orders the steps of an address as they stand in the text: with the multiples of four inames in one sum, a product of
  // 2048 took 400.9 us on an H100, nested as axes are 395.6.
  const bool nests = context_.dialect.is_literal;
  loop::LinearSum index;
  for (size_t d = 0; d < subscript.args.size(); ++d)
    if (!place.vanished.contains(d)) index = index.times(place.sizes[d], nests).add(loop::sum_of(subscript.args[d]));
  return index;
}

// What is added comes before what is taken away: "74 - j", "t * 64 - c + 1".
ExpressionWriter::Text ExpressionWriter::linear_text(const loop::LinearSum& linear) const {
  std::vector<loop::LinearSum::Term> terms = linear.terms;
  std::ranges::stable_partition(terms, [](const loop::LinearSum::Term& term) { return term.coefficient > 0; });
  std::string text;
  int weakest = kPrimary;
  const bool constant_first = linear.constant > 0 && (terms.empty() || terms[0].coefficient < 0);
  if (constant_first || terms.empty()) text = fmt::format("{}", linear.constant);
  for (const loop::LinearSum::Term& term : terms) {
    const int64_t size = std::abs(term.coefficient);
    weakest = !text.empty() ? kAdd : term.coefficient < 0 ? kUnary : size != 1 ? kMultiply : kPrimary;
    if (!text.empty())
      text += term.coefficient < 0 ? " - " : " + ";
    else if (term.coefficient < 0)
      text += "-";
    text += write(term.atom, Type::i64, kMultiply);
    if (size != 1) text += fmt::format(" * {}", size);
  }
  if (terms.size() == 1 && linear.terms[0].coefficient == -1) weakest = std::min(weakest, static_cast<int>(kUnary));
  if (linear.constant != 0 && !constant_first && !terms.empty()) {
    text += fmt::format(" {} {}", linear.constant < 0 ? "-" : "+", std::abs(linear.constant));
    weakest = kAdd;
  }
  if (terms.empty() && linear.constant < 0) weakest = kUnary;
  if (weakest == kUnary && text.find('*') != std::string::npos) weakest = kMultiply;
  return {text, weakest, Type::i64};
}

std::string ExpressionWriter::write(const loop::LinearSum& linear, int precedence) const {
  const Text text = linear_text(linear);
  return text.precedence < precedence ? "(" + text.text + ")" : text.text;
}

std::string ExpressionWriter::write(const ConditionBound& bound) const {
  if (bound.divisor == 1) return write(bound.bound);
  return fmt::format("floord({}, {}) + {}", write(bound.bound), bound.divisor, bound.offset);
}

bool ExpressionWriter::is_nonnegative(const Expr& expr) const {
  const loop::LinearSum linear = loop::sum_of(expr);
  if (linear.constant < 0) return false;
  for (const loop::LinearSum::Term& term : linear.terms) {
    if (term.coefficient < 0) return false;
    const Expr& atom = term.atom;
    const bool known = atom.kind == Expr::Kind::name && context_.is_nonnegative(atom.name);
    const bool remainder = atom.kind == Expr::Kind::call && atom.name == "mod" && is_positive(atom.args[1]);
    const bool checked = atom.kind == Expr::Kind::call && atom.name == "inside";
    if (!known && !remainder && !checked) return false;
  }
  return true;
}

bool ExpressionWriter::is_positive(const Expr& expr) {
  const auto value = loop::constant_value(expr);
  return value && *value > 0;
}

ExpressionWriter::Text ExpressionWriter::natural_text(const Expr& expr) const {
  switch (expr.kind) {
    case Expr::Kind::number:
      if (!expr.is_integer) return {float_literal(expr.number), expr.number < 0 ? kUnary : kPrimary, Type::f32};
      return {fmt::format("{}", static_cast<int64_t>(expr.number)), expr.number < 0 ? kUnary : kPrimary, Type::i64};
    case Expr::Kind::name: return {expr.name, kPrimary, natural(expr)};
    case Expr::Kind::subscript: {
      const DType dtype = context_.places.of.at(expr.name).dtype;
      const bool narrow = dtype == DType::bf16 || dtype == DType::f16;
      return {narrow ? fmt::format("to_f32({})", element(expr)) : element(expr), kPrimary, natural(expr)};
    }
    case Expr::Kind::call: return call_text(expr);
    case Expr::Kind::reduce: return reduce_text(expr);
  }
  return {};
}

ExpressionWriter::Text ExpressionWriter::call_text(const Expr& expr) const {
  const std::string& name = expr.name;
  const Type type = natural(expr);
  auto binary = [&](const char* op, Type want, int precedence, Type result) -> Text {
    // One more on the right: a - (b - c). Additions keep their order too, as they round.
    return {
        fmt::format("{} {} {}", write(expr.args[0], want, precedence), op, write(expr.args[1], want, precedence + 1)),
        precedence, result};
  };

  if (loop::is_dtype_name(name)) {
    if (name == "bf16" || name == "f16")  // rounds, and goes on in f32
      return {fmt::format("to_f32(to_{}({}))", name, write(expr.args[0], Type::f32)), kPrimary, Type::f32};
    const Text value = natural_text(expr.args[0]);
    if (name == "i8" || (name == "i32" && value.type == Type::i64))  // ends at the edges of the type
      return {fmt::format("to_{}({})", name, value.text), kPrimary, type};
    return convert(value, type);
  }
  if (name == "inside" || name == "is_inside")
    return {fmt::format("{}({}, {}, {}, {})", name, context_.dialect.faults, write(expr.args[0], natural(expr.args[0])),
                        write(expr.args[1], Type::i64), write(expr.args[2], Type::i64)),
            kPrimary, type};
  if (name == "nonzero" || name == "is_nonzero")
    return {fmt::format("{}({}, {}, {})", name, context_.dialect.faults, write(expr.args[0], natural(expr.args[0])),
                        write(expr.args[1], Type::i64)),
            kPrimary, type};
  if (is_comparison(name)) {
    const bool floats = natural(expr.args[0]) == Type::f32 || natural(expr.args[1]) == Type::f32;
    const int precedence = name == "==" || name == "!=" ? kEqual : kCompare;
    // Parentheses around a comparison that is compared: compilers ask for them.
    auto side = [&](const Expr& arg) {
      return write(arg, floats ? Type::f32 : natural(arg), natural(arg) == Type::truth ? kAdd : precedence + 1);
    };
    return {fmt::format("{} {} {}", side(expr.args[0]), name, side(expr.args[1])), precedence, Type::truth};
  }
  if (name == "and") return binary("&&", Type::truth, kAnd, Type::truth);
  // Parentheses around && inside ||: compilers ask for them.
  if (name == "or")
    return {fmt::format("{} || {}", write(expr.args[0], Type::truth, kEqual), write(expr.args[1], Type::truth, kEqual)),
            kOr, Type::truth};
  if (name == "not") return {"!" + write(expr.args[0], Type::truth, kUnary), kUnary, Type::truth};
  if (name == "if")
    return {fmt::format("{} ? {} : {}", write(expr.args[0], Type::truth, kOr), write(expr.args[1], type, kOr),
                        write(expr.args[2], type, kOr)),
            kChoice, type};
  if (name == "neg") {
    const std::string operand = write(expr.args[0], type, kUnary);
    return {operand[0] == '-' ? "-(" + operand + ")" : "-" + operand, kUnary, type};
  }
  if (name == "+" || name == "-" || name == "*") {
    if (type == Type::i64) {
      const loop::LinearSum linear = loop::sum_of(expr);
      const bool itself = linear.terms.size() == 1 && same_expression(linear.terms[0].atom, expr);
      // What flat_index() nests.
      const bool is_nested = context_.dialect.is_literal && name == "*" && linear.terms.size() > 1;
      if (!itself && !is_nested) return linear_text(linear);
    }
    return binary(name.c_str(), type, name == "*" ? kMultiply : kAdd, type);
  }
  if (name == "/" && context_.approximates)
    return {fmt::format("fast_divide({}, {})", write(expr.args[0], Type::f32), write(expr.args[1], Type::f32)),
            kPrimary, Type::f32};
  if (name == "/") return binary("/", Type::f32, kMultiply, Type::f32);
  if (name == "//" || name == "mod") {
    if (type == Type::f32) {
      const std::string quotient = fmt::format("floor({})", binary("/", Type::f32, kMultiply, Type::f32).text);
      if (name == "//") return {quotient, kPrimary, Type::f32};
      return {fmt::format("{} - {} * {}", write(expr.args[0], Type::f32, kAdd), quotient,
                          write(expr.args[1], Type::f32, kUnary)),
              kAdd, Type::f32};
    }
    if (is_nonnegative(expr.args[0]) && is_positive(expr.args[1]))
      return binary(name == "//" ? "/" : "%", Type::i64, kMultiply, Type::i64);
    return {fmt::format("{}({}, {})", name == "//" ? "floord" : "mod", write(expr.args[0], Type::i64),
                        write(expr.args[1], Type::i64)),
            kPrimary, Type::i64};
  }
  std::vector<std::string> args;
  for (const Expr& arg : expr.args) args.push_back(write(arg, type));
  const bool is_approximate = context_.approximates && (name == "exp" || name == "rsqrt");
  return {fmt::format("{}{}({})", is_approximate ? "fast_" : "", word_of(name, type), fmt::join(args, ", ")), kPrimary,
          type};
}

}  // namespace megalith::codegen
