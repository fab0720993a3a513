// Kernel text to kernel. Statements are found first, then domains and declarations are read, then instructions: whether
// `max(s, x)` reduces depends on what is an iname.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/function.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

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
  ExpressionParser(Cursor& cursor, const std::set<std::string>& inames) : cursor_(cursor), inames_(inames) {}

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
  int nesting_ = 0;

  Node grown(Expr expr, int depth) {
    if (depth > kMaxNesting) too_deep();
    return {std::move(expr), depth};
  }
  [[noreturn]] void too_deep() {
    cursor_.fail_at(cursor_.peek(), fmt::format("the expression is nested deeper than {} levels", kMaxNesting));
  }

  // Operators that bind at least as tightly as `least`, left to right.
  Node binary(int least) {
    if (++nesting_ > kMaxNesting) too_deep();
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
      if (++nesting_ > kMaxNesting) too_deep();
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
    const bool known = (function && function->precedence == 0) || is_dtype_name(name);
    if (!known) cursor_.fail_at(token, fmt::format("unknown function \"{}\": known are {}", name, known_functions()));
    Expr expr = make_call(name, {});
    const int depth = arguments(expr, ")");
    const int wanted = function ? function->num_args : 1;
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

class KernelParser {
 public:
  explicit KernelParser(std::string_view text) : tokens_(lex(text, "")), cursor_(tokens_, "") {}

  Kernel parse() {
    find_statements();
    for (size_t start : headers_) header(start);
    for (size_t start : domains_) domain(start);
    for (size_t start : declarations_) declaration(start);
    for (size_t start : instructions_) instruction(start);
    if (kernel_.instructions.empty()) cursor_.fail("an instruction such as `y[i] = 2 * x[i]`");
    finish_parameters();
    finish_tensors();
    finish_ids();
    finish_domains();
    return std::move(kernel_);
  }

 private:
  std::vector<Token> tokens_;
  Cursor cursor_;
  Kernel kernel_;
  std::vector<size_t> headers_, domains_, declarations_, instructions_;
  std::set<std::string> inames_;
  std::vector<Token> domain_names_;                            // other names in domains and assumptions
  std::vector<std::pair<std::string, const Token*>> tensors_;  // subscripted names in order of appearance
  std::vector<const Token*> domain_starts_;
  const Token* assume_start_ = nullptr;

  void find_statements() {
    constexpr std::string_view kDeclarations[] = {"parameter", "attribute", "input", "output", "inout",
                                                  "temporary", "assume",    "tag",   "opaque"};
    while (cursor_.peek().kind != Token::Kind::end) {
      const Token& first = cursor_.peek();
      const Token& second = cursor_.peek(1);
      const bool keyword = first.kind == Token::Kind::name && !second.is("[") && !second.is("=");
      if (first.is("{") || first.is("["))
        domains_.push_back(cursor_.position());
      else if (keyword && first.is("kernel"))
        headers_.push_back(cursor_.position());
      else if (keyword && std::ranges::find(kDeclarations, first.text) != std::end(kDeclarations))
        declarations_.push_back(cursor_.position());
      else if (first.kind != Token::Kind::newline)
        instructions_.push_back(cursor_.position());
      while (cursor_.peek().kind != Token::Kind::newline && cursor_.peek().kind != Token::Kind::end) cursor_.next();
      cursor_.next();
      if (cursor_.peek().kind == Token::Kind::end) break;
    }
  }

  void end_of_line() {
    if (cursor_.peek().kind != Token::Kind::newline) cursor_.fail("the end of the line");
  }

  void header(size_t start) {
    cursor_.seek(start);
    const Token& token = cursor_.next();
    if (!kernel_.name.empty()) cursor_.fail_at(token, "the kernel is named twice");
    if (cursor_.peek().kind != Token::Kind::name) cursor_.fail("the kernel's name");
    kernel_.name = cursor_.next().text;  // reserved or not: an operator may be called argmax
    cursor_ = Cursor(tokens_, kernel_.name, cursor_.position());
    end_of_line();
  }

  void domain(size_t start) {
    cursor_.seek(start);
    domain_starts_.push_back(&cursor_.peek());
    const DomainText domain = read_domain(cursor_);
    end_of_line();
    for (const std::string& iname : domain.inames)
      if (!inames_.insert(iname).second)
        cursor_.fail_at(*domain_starts_.back(), fmt::format("the iname \"{}\" is in two domains", iname));
    kernel_.domains.push_back(domain.text());
    collect_names(start, domain.names);
  }

  // Remembers where each of `names` is first mentioned at or after token `start`.
  void collect_names(size_t start, const std::vector<std::string>& names) {
    for (const std::string& name : names)
      for (size_t i = start;; ++i)
        if (tokens_[i].kind == Token::Kind::name && tokens_[i].text == name) {
          domain_names_.push_back(tokens_[i]);
          break;
        }
  }

  void declaration(size_t start) {
    cursor_.seek(start);
    const Token& keyword = cursor_.next();
    if (keyword.is("opaque")) {
      kernel_.opaque = true;
    } else if (keyword.is("assume")) {
      assume(keyword);
    } else if (keyword.is("parameter")) {
      Parameter parameter{new_name("a parameter"), cursor_.accept("dynamic")};
      kernel_.parameters.push_back(std::move(parameter));
    } else if (keyword.is("attribute")) {
      attribute();
    } else if (keyword.is("tag")) {
      tag();
    } else {
      tensor(keyword);
    }
    end_of_line();
  }

  // A name that has no meaning yet.
  std::string new_name(std::string_view what) {
    const Token& token = cursor_.peek();
    const std::string name = cursor_.expect_name(what);
    const char* taken = inames_.contains(name)       ? "an iname"
                        : kernel_.is_parameter(name) ? "a parameter"
                        : kernel_.is_attribute(name) ? "an attribute"
                        : kernel_.find_tensor(name)  ? "a tensor"
                                                     : nullptr;
    if (taken) cursor_.fail_at(token, fmt::format("\"{}\" is already {}, wanted a new name for {}", name, taken, what));
    return name;
  }

  void assume(const Token& keyword) {
    const size_t start = cursor_.position();
    const DomainText constraints = read_constraints(cursor_, "");
    if (constraints.body.empty()) cursor_.fail("a constraint on the parameters such as `n >= 1`");
    kernel_.assumptions = kernel_.assumptions.empty()
                              ? constraints.body
                              : fmt::format("({}) and ({})", kernel_.assumptions, constraints.body);
    if (kernel_.assumptions.size() > 100000) cursor_.fail_at(keyword, "too many assumptions");
    assume_start_ = &keyword;
    collect_names(start, constraints.names);
  }

  void attribute() {
    Attribute result{new_name("an attribute"), 0};
    if (cursor_.accept("=")) {
      const bool negative = cursor_.accept("-");
      const Token& token = cursor_.peek();
      if (token.is("inf"))
        result.value = INFINITY;
      else if (token.kind == Token::Kind::number)
        result.value = std::strtod(std::string(token.text).c_str(), nullptr);
      else
        cursor_.fail("a number");
      cursor_.next();
      if (negative) result.value = -result.value;
    }
    kernel_.attributes.push_back(std::move(result));
  }

  void tag() {
    const Token& token = cursor_.peek();
    const std::string iname = cursor_.expect_name("an iname");
    if (!inames_.contains(iname)) cursor_.fail_at(token, fmt::format("\"{}\" is not an iname of any domain", iname));
    cursor_.expect("=");
    if (cursor_.accept("task"))
      kernel_.tags[iname] = InameTag::task;
    else if (cursor_.accept("loop"))
      kernel_.tags[iname] = InameTag::loop;
    else
      cursor_.fail("task or loop");
  }

  void tensor(const Token& keyword) {
    TensorArgument result;
    result.role = keyword.is("input")    ? Role::input
                  : keyword.is("output") ? Role::output
                  : keyword.is("inout")  ? Role::inout
                                         : Role::temporary;
    result.name = new_name("a tensor");
    if (cursor_.accept(":")) {
      const Token& token = cursor_.peek();
      if (token.kind == Token::Kind::name) {
        if (!is_dtype_name(token.text)) cursor_.fail("bf16, f16, f32, i32 or i64");
        result.dtype = dtype_parse(cursor_.next().text);
      } else if (!token.is("[")) {
        cursor_.fail("a dtype or a shape such as f32[T, H]");
      }
      if (cursor_.accept("[")) {
        result.shape_known = true;
        ExpressionParser parser(cursor_, inames_);
        while (!cursor_.accept("]")) {
          const Token& at = cursor_.peek();
          result.shape.push_back(parser.parse());
          if (reads_tensor(result.shape.back())) cursor_.fail_at(at, "a shape cannot depend on data");
          if (!cursor_.peek().is("]")) cursor_.expect(",");
        }
      }
    }
    kernel_.tensors.push_back(std::move(result));
  }

  void instruction(size_t start) {
    cursor_.seek(start);
    Instruction result;
    ExpressionParser parser(cursor_, inames_);
    result.target = parser.subscript();
    cursor_.expect("=");
    result.value = parser.parse();
    std::set<std::string> within;
    collect_inames(result.target, within);
    if (cursor_.accept("{")) options(result, parser, within);
    end_of_line();
    for (size_t i = start; i < cursor_.position(); ++i)
      if (tokens_[i].kind == Token::Kind::name && tokens_[i + 1].is("[") && !is_reserved_name(tokens_[i].text))
        tensors_.emplace_back(tokens_[i].text, &tokens_[i]);
    result.within.assign(within.begin(), within.end());  // put in order when all is read
    kernel_.instructions.push_back(std::move(result));
  }

  void collect_inames(const Expr& expr, std::set<std::string>& found) const {
    if (expr.kind == Expr::Kind::name && inames_.contains(expr.name)) found.insert(expr.name);
    for (const Expr& arg : expr.args) collect_inames(arg, found);
  }

  void options(Instruction& instruction, ExpressionParser& parser, std::set<std::string>& within) {
    while (!cursor_.accept("}")) {
      const Token& option = cursor_.next();
      cursor_.expect("=");
      if (option.is("id")) {
        instruction.id = cursor_.expect_name("an instruction's id");
      } else if (option.is("if")) {
        instruction.condition = parser.parse();
      } else if (option.is("dep")) {
        do instruction.depends_on.push_back(cursor_.expect_name("an instruction's id"));
        while (cursor_.accept(":"));
      } else if (option.is("inames")) {
        do {
          const Token& token = cursor_.peek();
          const std::string iname = cursor_.expect_name("an iname");
          if (!inames_.contains(iname))
            cursor_.fail_at(token, fmt::format("\"{}\" is not an iname of any domain", iname));
          within.insert(iname);
        } while (cursor_.accept(":"));
      } else {
        cursor_.fail_at(option, fmt::format("unknown option \"{}\", wanted id, dep, if or inames", option.text));
      }
      if (!cursor_.peek().is("}")) cursor_.expect(",");
    }
  }

  // Names in domains that are no inames are parameters.
  void finish_parameters() {
    for (const Token& token : domain_names_) {
      const std::string name(token.text);
      if (inames_.contains(name) || kernel_.is_parameter(name)) continue;
      if (kernel_.is_attribute(name))
        cursor_.fail_at(token, fmt::format("\"{}\" is an attribute, wanted a parameter", name));
      if (kernel_.find_tensor(name))
        cursor_.fail_at(token, fmt::format("\"{}\" is a tensor, wanted a parameter", name));
      kernel_.parameters.push_back({name, false});
    }
  }

  void finish_tensors() {
    std::set<std::string> read, written;
    for (const Instruction& instruction : kernel_.instructions) {
      written.insert(instruction.target.name);
      for (const Expr& arg : instruction.target.args) collect_reads(arg, read);
      collect_reads(instruction.value, read);
      if (instruction.condition) collect_reads(*instruction.condition, read);
    }
    for (const auto& [name, token] : tensors_) {
      if (kernel_.find_tensor(name)) continue;
      if (kernel_.is_parameter(name) || kernel_.is_attribute(name))
        cursor_.fail_at(*token, fmt::format("\"{}\" is a {}, wanted a tensor", name,
                                            kernel_.is_parameter(name) ? "parameter" : "attribute"));
      TensorArgument tensor;
      tensor.name = name;
      tensor.role = !written.contains(name) ? Role::input : read.contains(name) ? Role::temporary : Role::output;
      kernel_.tensors.push_back(std::move(tensor));
    }
  }

  static void collect_reads(const Expr& expr, std::set<std::string>& names) {
    if (expr.kind == Expr::Kind::subscript) names.insert(expr.name);
    for (const Expr& arg : expr.args) collect_reads(arg, names);
  }

  void finish_ids() {
    std::set<std::string> ids;
    for (size_t i = 0; i < kernel_.instructions.size(); ++i) {
      std::string& id = kernel_.instructions[i].id;
      if (id.empty()) id = fmt::format("insn{}", i);
      MEGALITH_CHECK(ids.insert(id).second, "{} two instructions have the id \"{}\"", message_prefix(kernel_.name), id);
    }
  }

  // isl reads what we took for domains; and everything is put in the order of the domains.
  void finish_domains() {
    check_domain_texts(kernel_, [&](int index, const std::string& reason) {
      cursor_.fail_at(index < 0 ? *assume_start_ : *domain_starts_[static_cast<size_t>(index)], reason);
    });
    const std::vector<std::string> order = kernel_.inames();
    for (Instruction& instruction : kernel_.instructions)
      std::ranges::sort(instruction.within, {},
                        [&](const std::string& iname) { return std::ranges::find(order, iname); });
  }
};

}  // namespace

Kernel parse_kernel(std::string_view text) { return KernelParser(text).parse(); }

}  // namespace megalith::loop
