#include "megalith/codegen/loop_expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/function.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

namespace {

using loop::Expr;

// How tightly C++ binds, weakest first.
constexpr int kChoose = 1, kEither = 2, kBoth = 3, kEquals = 4, kLess = 5, kSum = 6, kProduct = 7, kSign = 8,
              kWhole = 9;

std::string float_text(double value) {
  if (std::isinf(value)) return value < 0 ? "-kInfinity" : "kInfinity";
  std::string text = fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

int comparison_precedence(const std::string& name) {
  if (name == "==" || name == "!=") return kEquals;
  return name == "<" || name == "<=" || name == ">" || name == ">=" ? kLess : 0;
}

bool is_truth(const Expr& expr) {
  return expr.kind == Expr::Kind::call &&
         (comparison_precedence(expr.name) > 0 || expr.name == "and" || expr.name == "or" || expr.name == "not");
}

}  // namespace

std::string LoopExpressions::element_type(DType dtype) { return std::string(dtype_name(dtype)); }

std::string LoopExpressions::element(const Expr& subscript) const {
  std::vector<std::string> index;
  for (const Expr& arg : subscript.args) {
    MEGALITH_CHECK(
        loop::is_affine(kernel_, arg),
        "{} the subscript {} of {} is not affine, and nothing would check it here: fix the sizes in it; what "
        "depends on data is made code in a graph only",
        loop::message_prefix(kernel_.name), loop::print(arg), subscript.name);
    index.push_back(text(arg, false, 0));
  }
  return element_(subscript.name, index);
}

std::string LoopExpressions::stored(const Expr& expr, DType dtype) const {
  if (dtype == DType::f32) return as_float(expr);
  if (dtype == DType::bf16 || dtype == DType::f16) return fmt::format("to_{}({})", dtype_name(dtype), as_float(expr));
  const std::string plain = value(expr);
  if (dtype == DType::i64) return is_float(expr) ? fmt::format("to_i64({})", plain) : plain;
  const std::string narrowed = fmt::format("to_{}({})", dtype_name(dtype), plain);
  return dtype == DType::i8 ? fmt::format("static_cast<i8>({})", narrowed) : narrowed;
}

std::string LoopExpressions::condition(const Expr& expr, int least) const {
  int precedence = kWhole;
  std::string result;
  if (const int compares = comparison_precedence(expr.name); expr.kind == Expr::Kind::call && compares > 0) {
    precedence = compares;
    const bool floats = is_float(expr.args[0]) || is_float(expr.args[1]);
    result = fmt::format("{} {} {}", text(expr.args[0], floats, compares + 1), expr.name,
                         text(expr.args[1], floats, compares + 1));
  } else if (is_truth(expr) && expr.name == "not") {
    precedence = kSign;
    result = "!" + condition(expr.args[0], kSign);
  } else if (is_truth(expr)) {
    precedence = expr.name == "and" ? kBoth : kEither;
    // Parentheses around && inside of ||, as compilers ask for.
    const int inner = expr.name == "and" ? kBoth : kEquals;
    result = fmt::format("{} {} {}", condition(expr.args[0], inner), expr.name == "and" ? "&&" : "||",
                         condition(expr.args[1], inner));
  } else {
    precedence = kEquals;
    result = fmt::format("{} != 0", text(expr, is_float(expr), kEquals + 1));
  }
  return precedence < least ? "(" + result + ")" : result;
}

std::string LoopExpressions::text(const Expr& expr, bool as_float, int least) const {
  int precedence = kWhole;
  std::string result;
  switch (expr.kind) {
    case Expr::Kind::number:
      result = as_float ? float_text(expr.number) : fmt::format("{}", static_cast<int64_t>(expr.number));
      if (result.starts_with('-')) precedence = kSign;
      return precedence < least ? "(" + result + ")" : result;
    case Expr::Kind::name: result = expr.name; break;
    case Expr::Kind::subscript:
      result = element(expr);
      if (expr.dtype == DType::bf16 || expr.dtype == DType::f16) result = fmt::format("to_f32({})", result);
      if (!is_float(expr) && expr.dtype != DType::i64) result = fmt::format("static_cast<i64>({})", result);
      break;
    case Expr::Kind::call: result = call(expr, as_float, precedence); break;
    case Expr::Kind::reduce: result = reduce_(expr); break;
  }
  const bool has_float = is_float(expr) && !is_truth(expr);
  if (as_float != has_float) {
    result = fmt::format("{}({})", as_float ? "static_cast<f32>" : "to_i64", result);
    precedence = kWhole;
  }
  return precedence < least ? "(" + result + ")" : result;
}

// In the type that the call has by itself.
std::string LoopExpressions::call(const Expr& expr, bool, int& precedence) const {
  const std::string& name = expr.name;
  const bool floats = is_float(expr);
  const auto binary = [&](const char* op, int at, bool in_floats) {
    precedence = at;
    return fmt::format("{} {} {}", text(expr.args[0], in_floats, at), op, text(expr.args[1], in_floats, at + 1));
  };
  if (loop::is_dtype_name(name)) {
    const DType dtype = dtype_parse(name);
    if (dtype == DType::f32) return text(expr.args[0], true, kWhole);
    if (dtype_is_float(dtype)) return fmt::format("to_f32({})", stored(expr.args[0], dtype));
    return fmt::format("static_cast<i64>({})", stored(expr.args[0], dtype));
  }
  if (is_truth(expr)) return fmt::format("static_cast<i64>({})", condition(expr));
  if (name == "if") {
    precedence = kChoose;
    return fmt::format("{} ? {} : {}", condition(expr.args[0], kEither), text(expr.args[1], floats, kEither),
                       text(expr.args[2], floats, kEither));
  }
  if (name == "neg") {
    precedence = kSign;
    const std::string operand = text(expr.args[0], floats, kSign);
    return operand.starts_with('-') ? fmt::format("-({})", operand) : "-" + operand;
  }
  if (name == "+" || name == "-") return binary(name.c_str(), kSum, floats);
  if (name == "*") return binary("*", kProduct, floats);
  if (name == "/") return binary("/", kProduct, true);
  if (name == "//" || name == "mod")
    return fmt::format("{}({}, {})", name == "//" ? "floord" : "mod", text(expr.args[0], false, 0),
                       text(expr.args[1], false, 0));
  std::vector<std::string> args;
  for (const Expr& arg : expr.args) args.push_back(text(arg, floats, 0));
  // Those of prelude.h drop NaN.
  const bool keeps_nan = floats && (name == "max" || name == "min");
  return fmt::format("{}({})", keeps_nan ? (name == "max" ? "larger" : "smaller") : name, fmt::join(args, ", "));
}

}  // namespace megalith::codegen
