#include "megalith/loop/parse_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "megalith/base/stack.h"
#include "megalith/loop/function.h"

namespace megalith::loop {

namespace {

constexpr double kLargestInteger = 9007199254740992.0;  // 2^53: the interpreter holds integers in doubles

// An expression and how deep its tree is: everything after the parser may recurse on it.
struct Node {
  Expr expr;
  int depth = 1;
};

class ExpressionParser {
 public:
  ExpressionParser(Cursor& cursor, const std::set<std::string>& inames, const std::map<std::string, size_t>* rules)
      : cursor_(cursor), inames_(inames), rules_(rules) {}

  Expr parse() { return binary(1).expr; }
  Expr subscript() {
    const Token& token = cursor_.peek();
    const std::string name = cursor_.expect_name("a tensor");
    if (!cursor_.peek().is("[")) cursor_.fail("\"[\"");
    if (inames_.contains(name)) cursor_.fail_at(token, fmt::format("\"{}\" is an iname, wanted a tensor", name));
    return subscript(name).expr;
  }

 private:
  Cursor& cursor_;
  const std::set<std::string>& inames_;
  const std::map<std::string, size_t>* rules_;
  int nesting_ = 0;

  Node grown(Expr expr, int depth) {
    if (depth > kMaxNesting) too_deep();
    return {std::move(expr), depth};
  }
  [[noreturn]] void too_deep() {
    cursor_.fail_at(
        cursor_.peek(),
        nesting_ > kMaxNesting || stack_has_room()
            ? fmt::format("the expression is nested deeper than {} levels", kMaxNesting)
            : fmt::format("the expression is nested deeper than the stack of this thread allows, {} levels; "
                          "give it a larger one (ulimit -s)",
                          nesting_));
  }

  // Operators that bind at least as tightly as `least`, left to right.
  Node binary(int least) {
    if (++nesting_ > kMaxNesting || !stack_has_room()) too_deep();
    Node left = prefix(least);
    for (;;) {
      const Token token = cursor_.peek();
      const Function* op = infix(token);
      if (!op || op->precedence < least) break;
      cursor_.next();
      Node right = binary(op->precedence + 1);
      const int depth = 1 + std::max(left.depth, right.depth);
      Expr expr = make_call(std::string(op->name), {});
      expr.args.push_back(std::move(left.expr));
      expr.args.push_back(std::move(right.expr));
      left = grown(std::move(expr), depth);
      if (op->precedence == kPrecedenceCompare && infix(cursor_.peek()) &&
          infix(cursor_.peek())->precedence == kPrecedenceCompare)
        cursor_.fail_at(cursor_.peek(), "comparisons do not chain: write `a <= b and b < c`");
    }
    --nesting_;
    return left;
  }

  static const Function* infix(const Token& token) {
    if (token.kind != Token::Kind::symbol && token.kind != Token::Kind::name) return nullptr;
    const Function* found = find_function(token.text);
    return found && found->precedence > 0 && found->num_args == 2 ? found : nullptr;
  }

  Node prefix(int least) {
    if (cursor_.peek().is("not")) {
      if (least > kPrecedenceNot) cursor_.fail("parentheses around `not`");
      cursor_.next();
      return unary("not", binary(kPrecedenceNot));
    }
    if (cursor_.accept("-")) {
      if (++nesting_ > kMaxNesting || !stack_has_room()) too_deep();
      Node operand = prefix(kPrecedenceNeg);
      --nesting_;
      if (operand.expr.kind == Expr::Kind::number && !std::signbit(operand.expr.number)) {
        const bool zero = operand.expr.is_integer && operand.expr.number == 0;
        operand.expr.number = zero ? 0 : -operand.expr.number;
        return operand;
      }
      return unary("neg", std::move(operand));
    }
    return primary();
  }

  Node unary(const char* name, Node operand) {
    const int depth = operand.depth + 1;
    Expr expr = make_call(name, {});
    expr.args.push_back(std::move(operand.expr));
    return grown(std::move(expr), depth);
  }

  Node primary() {
    const Token token = cursor_.peek();
    if (token.kind == Token::Kind::number) return {number()};
    if (cursor_.accept("(")) {
      Node inside = binary(1);
      cursor_.expect(")");
      return inside;
    }
    if (token.kind != Token::Kind::name) cursor_.fail("an expression");
    if (token.is("inf")) {
      cursor_.next();
      return {make_number(INFINITY)};
    }
    if (cursor_.peek(1).is("(")) return call();
    const std::string name = cursor_.expect_name("an expression");
    if (!cursor_.peek().is("[")) return {make_name(name)};
    if (inames_.contains(name)) cursor_.fail_at(token, fmt::format("\"{}\" is an iname, wanted a tensor", name));
    return subscript(name);
  }

  Expr number() {
    const Token& token = cursor_.next();
    const double value = std::strtod(std::string(token.text).c_str(), nullptr);
    if (!token.is_integer) return make_number(value);
    if (value > kLargestInteger) cursor_.fail_at(token, "the integer is larger than 2^53");
    return make_integer(static_cast<int64_t>(value));
  }

  // The arguments up to `close`, which is consumed.
  int arguments(Expr& expr, const char* close) {
    int depth = 0;
    if (cursor_.accept(close)) return depth;
    for (;;) {
      Node arg = binary(1);
      depth = std::max(depth, arg.depth);
      expr.args.push_back(std::move(arg.expr));
      if (cursor_.accept(close)) return depth;
      if (!cursor_.accept(",")) cursor_.fail(fmt::format("\",\" or \"{}\"", close));
    }
  }

  Node subscript(const std::string& name) {
    cursor_.expect("[");
    Expr expr;
    expr.kind = Expr::Kind::subscript;
    expr.name = name;
    const int depth = arguments(expr, "]");
    return grown(std::move(expr), depth + 1);
  }

  Node call() {
    const Token token = cursor_.next();
    cursor_.next();  // "("
    const std::string name(token.text);
    if (auto inames = reduction_inames(name)) return reduction(token, name, std::move(*inames));

    const Function* function = find_function(name);
    const auto rule = rules_ ? rules_->find(name) : std::map<std::string, size_t>::const_iterator();
    const bool is_rule = rules_ && rule != rules_->end();
    const bool known = (function && function->precedence == 0) || is_dtype_name(name) || is_rule;
    if (!known) cursor_.fail_at(token, fmt::format("unknown function \"{}\": known are {}", name, known_functions()));
    Expr expr = make_call(name, {});
    const int depth = arguments(expr, ")");
    const int wanted = is_rule ? static_cast<int>(rule->second) : function ? function->num_args : 1;
    if (static_cast<int>(expr.args.size()) != wanted)
      cursor_.fail_at(token, fmt::format("{} has {} arguments, wanted {}", name, expr.args.size(), wanted));
    return grown(std::move(expr), depth + 1);
  }

  // After "max(" and so on: the inames reduced over, or nothing if this is the function of two arguments.
  std::optional<std::vector<std::string>> reduction_inames(const std::string& name) {
    const bool only_reduction = name == "sum" || name == "argmax";
    if (!only_reduction && name != "min" && name != "max") return std::nullopt;
    const size_t start = cursor_.position();
    std::vector<std::string> inames;
    auto take_iname = [&] {
      const Token& token = cursor_.peek();
      if (token.kind != Token::Kind::name || !inames_.contains(std::string(token.text))) return false;
      inames.emplace_back(token.text);
      cursor_.next();
      return true;
    };
    bool is_reduction = false;
    if (cursor_.accept("(")) {
      while (take_iname() && cursor_.accept(",")) {}
      is_reduction = cursor_.accept(")") && cursor_.peek().is(",");
    } else {
      is_reduction = take_iname() && cursor_.peek().is(",");
    }
    if (is_reduction && !inames.empty()) return inames;
    if (only_reduction) cursor_.fail("an iname, or several in parentheses, to reduce over, and \",\"");
    cursor_.seek(start);
    return std::nullopt;
  }

  Node reduction(const Token& token, const std::string& name, std::vector<std::string> inames) {
    cursor_.expect(",");
    Expr expr;
    expr.kind = Expr::Kind::reduce;
    expr.reduce = name == "sum"   ? ReduceOp::sum
                  : name == "max" ? ReduceOp::max
                  : name == "min" ? ReduceOp::min
                                  : ReduceOp::argmax;
    expr.inames = std::move(inames);
    if (expr.reduce == ReduceOp::argmax && expr.inames.size() != 1)
      cursor_.fail_at(token, fmt::format("argmax over {} inames, wanted exactly one", expr.inames.size()));
    if (std::set<std::string>(expr.inames.begin(), expr.inames.end()).size() != expr.inames.size())
      cursor_.fail_at(token, fmt::format("{} names an iname twice", name));
    const int depth = arguments(expr, ")");
    if (expr.args.empty() || expr.args.size() > 2)
      cursor_.fail_at(token,
                      fmt::format("a reduction has {} arguments after its inames, wanted an expression and perhaps "
                                  "a condition",
                                  expr.args.size()));
    return grown(std::move(expr), depth + 1);
  }

  static std::string known_functions() {
    std::string names;
    for (const Function& function : function_table())
      if (function.precedence == 0) names += fmt::format("{}{}", names.empty() ? "" : ", ", function.name);
    return names + ", sum, argmax and casts such as f32";
  }
};

}  // namespace

Expr parse_expression(Cursor& cursor, const std::set<std::string>& inames, const std::map<std::string, size_t>* rules) {
  return ExpressionParser(cursor, inames, rules).parse();
}

Expr parse_subscript(Cursor& cursor, const std::set<std::string>& inames) {
  return ExpressionParser(cursor, inames, nullptr).subscript();
}

}  // namespace megalith::loop
