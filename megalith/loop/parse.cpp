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
#include "megalith/loop/parse_expression.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

class KernelParser {
 public:
  KernelParser(std::string_view text, bool asks_isl)
      : tokens_(lex(text, "")), cursor_(tokens_, ""), asks_isl_(asks_isl) {}

  Kernel parse() {
    find_statements();
    for (size_t start : headers_) header(start);
    for (size_t start : domains_) domain(start);
    for (size_t start : declarations_) declaration(start);
    for (size_t start : instructions_) instruction(start);
    if (is_behind_barrier_) cursor_.fail("an instruction behind the barrier");
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
  const bool asks_isl_;
  Kernel kernel_;
  std::vector<size_t> headers_, domains_, declarations_, instructions_;
  std::set<std::string> inames_;
  std::vector<Token> domain_names_;                            // other names in domains and assumptions
  std::vector<std::pair<std::string, const Token*>> tensors_;  // subscripted names in order of appearance
  std::vector<const Token*> domain_starts_;
  const Token* assume_start_ = nullptr;
  bool is_behind_barrier_ = false;
  std::map<std::string, size_t> rules_;  // and how many arguments each has

  void find_statements() {
    constexpr std::string_view kDeclarations[] = {"parameter", "attribute", "input",  "output", "inout", "temporary",
                                                  "assume",    "tag",       "opaque", "order",  "rule"};
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
    } else if (keyword.is("order")) {
      order(keyword);
    } else if (keyword.is("rule")) {
      rule();
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
                        : is_of_rule(name)           ? "a rule"
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

  void rule() {
    Rule result{new_name("a rule"), {}, {}};
    cursor_.expect("(");
    while (!cursor_.accept(")")) {
      result.arguments.push_back(new_name("an argument"));
      if (is_among(result.arguments.begin(), result.arguments.end() - 1, result.arguments.back()) ||
          result.arguments.back() == result.name)
        cursor_.fail(fmt::format("another name than \"{}\" for the argument", result.arguments.back()));
      if (!cursor_.peek().is(")")) cursor_.expect(",");
    }
    cursor_.expect("=");
    const size_t start = cursor_.position();
    result.body = parse_expression(cursor_, inames_, &rules_);
    note_tensors(start);
    rules_[result.name] = result.arguments.size();
    kernel_.rules.push_back(std::move(result));
  }

  template <class Iterator>
  static bool is_among(Iterator begin, Iterator end, const std::string& name) {
    return std::find(begin, end, name) != end;
  }

  // Names in front of "[" from token `start` on.
  void note_tensors(size_t start) {
    for (size_t i = start; i < cursor_.position(); ++i)
      if (tokens_[i].kind == Token::Kind::name && tokens_[i + 1].is("[") && !is_reserved_name(tokens_[i].text))
        tensors_.emplace_back(tokens_[i].text, &tokens_[i]);
  }

  void tag() {
    const Token& token = cursor_.peek();
    const std::string iname = cursor_.expect_name("an iname");
    if (!inames_.contains(iname)) cursor_.fail_at(token, fmt::format("\"{}\" is not an iname of any domain", iname));
    cursor_.expect("=");
    kernel_.tags[iname] = tag_name();
  }

  // "g.0" is the name "g" and the number ".0".
  InameTag tag_name() {
    std::string name(cursor_.peek().text);
    if (const Token& number = cursor_.peek(1); number.text.starts_with('.')) name += number.text;
    const auto tag = tag_of_name(name);
    if (cursor_.peek().kind != Token::Kind::name || !tag) cursor_.fail(tag_names());
    cursor_.next();
    if (cursor_.peek().text.starts_with('.')) cursor_.next();
    return *tag;
  }

  void order(const Token& keyword) {
    if (!kernel_.order.empty()) cursor_.fail_at(keyword, "a second order, wanted one");
    do {
      const Token& token = cursor_.peek();
      const std::string iname = cursor_.expect_name("an iname");
      if (!inames_.contains(iname)) cursor_.fail_at(token, fmt::format("\"{}\" is not an iname of any domain", iname));
      if (std::ranges::find(kernel_.order, iname) != kernel_.order.end())
        cursor_.fail_at(token, fmt::format("\"{}\" is in the order twice", iname));
      kernel_.order.push_back(iname);
    } while (cursor_.accept(","));
    if (kernel_.order.size() != inames_.size())
      cursor_.fail_at(keyword,
                      fmt::format("the order names {} inames, wanted all {}", kernel_.order.size(), inames_.size()));
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
        if (!is_dtype_name(token.text)) cursor_.fail("bf16, f16, f32, i8, i32 or i64");
        result.dtype = dtype_parse(cursor_.next().text);
      } else if (!token.is("[")) {
        cursor_.fail("a dtype or a shape such as f32[T, H]");
      }
      if (cursor_.accept("[")) {
        result.shape_known = true;
        while (!cursor_.accept("]")) {
          const Token& at = cursor_.peek();
          result.shape.push_back(parse_expression(cursor_, inames_));
          if (reads_tensor(result.shape.back())) cursor_.fail_at(at, "a shape cannot depend on data");
          if (!cursor_.peek().is("]")) cursor_.expect(",");
        }
      }
    }
    if (result.role == Role::output || result.role == Role::inout) result.is_streamed = cursor_.accept("streamed");
    if (cursor_.peek().kind == Token::Kind::name) {
      const auto space = space_of_name(cursor_.peek().text);
      if (result.role != Role::temporary || (!space && !cursor_.peek().is("in"))) cursor_.fail("the end of the line");
      if (space) {
        result.space = *space;
        cursor_.next();
      }
      if (cursor_.accept("in")) result.storage = cursor_.expect_name("a storage that temporaries share");
    }
    kernel_.tensors.push_back(std::move(result));
  }

  void instruction(size_t start) {
    cursor_.seek(start);
    if (cursor_.peek().is("barrier") && !cursor_.peek(1).is("[")) return barrier();
    Instruction result;
    result.is_behind_barrier = std::exchange(is_behind_barrier_, false);
    result.target = parse_subscript(cursor_, inames_);
    cursor_.expect("=");
    result.value = parse_expression(cursor_, inames_, &rules_);
    std::set<std::string> within;
    collect_inames(result.target, within);
    if (cursor_.accept("{")) options(result, within);
    end_of_line();
    note_tensors(start);
    result.within.assign(within.begin(), within.end());  // put in order when all is read
    kernel_.instructions.push_back(std::move(result));
  }

  void barrier() {
    const Token& token = cursor_.next();
    if (kernel_.instructions.empty() || is_behind_barrier_)
      cursor_.fail_at(token, "a barrier with no instruction before it, wanted it between two");
    is_behind_barrier_ = true;
    end_of_line();
  }

  void collect_inames(const Expr& expr, std::set<std::string>& found) const {
    if (expr.kind == Expr::Kind::name && inames_.contains(expr.name)) found.insert(expr.name);
    for (const Expr& arg : expr.args) collect_inames(arg, found);
  }

  void options(Instruction& instruction, std::set<std::string>& within) {
    while (!cursor_.accept("}")) {
      const Token& option = cursor_.next();
      cursor_.expect("=");
      if (option.is("id")) {
        instruction.id = cursor_.expect_name("an instruction's id");
      } else if (option.is("if")) {
        instruction.condition = parse_expression(cursor_, inames_, &rules_);
      } else if (option.is("dep")) {
        do instruction.depends_on.push_back(cursor_.expect_name("an instruction's id"));
        while (cursor_.accept(":"));
      } else if (option.is("nosync")) {
        do instruction.unordered.push_back(cursor_.expect_name("an instruction's id"));
        while (cursor_.accept(":"));
      } else if (option.is("inames")) {
        do {
          const Token& token = cursor_.peek();
          const std::string iname = cursor_.expect_name("an iname");
          if (!inames_.contains(iname))
            cursor_.fail_at(token, fmt::format("\"{}\" is not an iname of any domain", iname));
          within.insert(iname);
        } while (cursor_.accept(":"));
      } else if (option.is("tag")) {
        const Token& token = cursor_.peek();
        const std::string iname = cursor_.expect_name("an iname");
        if (!inames_.contains(iname))
          cursor_.fail_at(token, fmt::format("\"{}\" is not an iname of any domain", iname));
        cursor_.expect(":");
        instruction.tags[iname] = tag_name();
      } else {
        cursor_.fail_at(option,
                        fmt::format("unknown option \"{}\", wanted id, dep, nosync, if, inames or tag", option.text));
      }
      if (!cursor_.peek().is("}")) cursor_.expect(",");
    }
  }

  // A rule, or an argument of one: names of their own, since steps replace names in rules as elsewhere.
  bool is_of_rule(const std::string& name) const {
    return std::ranges::any_of(kernel_.rules, [&](const Rule& rule) {
      return rule.name == name || is_among(rule.arguments.begin(), rule.arguments.end(), name);
    });
  }

  // Names in domains that are no inames are parameters.
  void finish_parameters() {
    for (const Token& token : domain_names_) {
      const std::string name(token.text);
      if (inames_.contains(name) || kernel_.is_parameter(name)) continue;
      if (kernel_.is_attribute(name))
        cursor_.fail_at(token, fmt::format("\"{}\" is an attribute, wanted a parameter", name));
      if (is_of_rule(name)) cursor_.fail_at(token, fmt::format("\"{}\" is of a rule, wanted a parameter", name));
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
    for (const Rule& rule : kernel_.rules) collect_reads(rule.body, read);
    for (const auto& [name, token] : tensors_) {
      if (kernel_.find_tensor(name)) continue;
      if (kernel_.is_parameter(name) || kernel_.is_attribute(name) || is_of_rule(name))
        cursor_.fail_at(*token, fmt::format("\"{}\" is a {}, wanted a tensor", name,
                                            kernel_.is_parameter(name)   ? "parameter"
                                            : kernel_.is_attribute(name) ? "attribute"
                                                                         : "rule"));
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
    if (asks_isl_)
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

Kernel parse_kernel(std::string_view text) { return KernelParser(text, true).parse(); }

Kernel parse_kernel_without_isl(std::string_view text) { return KernelParser(text, false).parse(); }

}  // namespace megalith::loop
