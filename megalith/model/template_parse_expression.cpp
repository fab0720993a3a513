#include "megalith/model/template_parse_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "megalith/base/stack.h"

namespace megalith {

using Token = TemplateTokenKind;
using Kind = TemplateExpression::Kind;

namespace {

// Of brackets and signs in each other, and of operators after each other: "a + b + c" nests to the left. Published
// templates stay below thirty.
constexpr int kMostLevels = 200;

}  // namespace

// Counts how deep the parser itself is.
class TemplateExpressionParser::Deeper {
 public:
  explicit Deeper(TemplateExpressionParser& parser) : parser_(parser) {
    if (++parser_.levels_ > kMostLevels || !stack_has_room()) {
      const int levels = --parser_.levels_;
      parser_.fail(fmt::format("an expression nests deeper than {} levels",
                               levels < kMostLevels ? levels : kMostLevels));
    }
  }
  ~Deeper() { --parser_.levels_; }

 private:
  TemplateExpressionParser& parser_;
};

void TemplateExpressionParser::fail(const std::string& message) const {
  template_fail(template_name_, line(), message);
}

std::string TemplateExpressionParser::describe() const {
  switch (peek().kind) {
    case Token::end: return "the end of the template";
    case Token::text: return "text";
    case Token::string: return "a string";
    default: return fmt::format("\"{}\"", peek().text);
  }
}

const TemplateToken& TemplateExpressionParser::expect(Token kind) {
  static constexpr std::pair<Token, const char*> kNames[] = {
      {Token::block_begin, "{%"}, {Token::block_end, "%}"}, {Token::output_end, "}}"}, {Token::name, "a name"}};
  if (is(kind)) return next();
  const auto* entry = std::find_if(std::begin(kNames), std::end(kNames), [&](auto& row) { return row.first == kind; });
  fail(fmt::format("found {}, want {}", describe(), entry == std::end(kNames) ? "another token" : entry->second));
}

void TemplateExpressionParser::expect_name(std::string_view name) {
  if (!take_name(name)) fail(fmt::format("found {}, want \"{}\"", describe(), name));
}

void TemplateExpressionParser::expect_symbol(std::string_view symbol) {
  if (!take_symbol(symbol)) fail(fmt::format("found {}, want \"{}\"", describe(), symbol));
}

TemplateExpressionPtr TemplateExpressionParser::make(Kind kind, std::string name) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = line(), .name = std::move(name)});
}

TemplateExpressionPtr TemplateExpressionParser::finish(Ptr expression) const {
  int levels = 0;
  for (const Ptr& part : expression->parts)
    if (part) levels = std::max(levels, part->levels);
  for (const auto& [name, part] : expression->keywords) levels = std::max(levels, part->levels);
  expression->levels = levels + 1;
  if (expression->levels > kMostLevels) fail(fmt::format("an expression nests deeper than {} levels", kMostLevels));
  return expression;
}

TemplateExpressionPtr TemplateExpressionParser::name_expression(std::string name) {
  names_used_.varargs |= name == "varargs";
  names_used_.kwargs |= name == "kwargs";
  names_used_.caller |= name == "caller";
  names_used_.loop |= name == "loop";
  return make(Kind::name, std::move(name));
}

TemplateExpressionPtr TemplateExpressionParser::binary(Ptr left, std::string name, Ptr right) {
  Ptr result = make(Kind::binary, std::move(name));
  result->parts.push_back(std::move(left));
  result->parts.push_back(std::move(right));
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::tuple(bool with_condition) {
  Ptr first = with_condition ? expression() : either();
  if (!is_symbol(",")) return first;
  Ptr result = make(Kind::tuple);
  result->parts.push_back(std::move(first));
  while (take_symbol(",")) {
    if (is(Token::block_end) || is(Token::output_end) || is_symbol(")")) break;
    result->parts.push_back(with_condition ? expression() : either());
  }
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::expression() {
  const Deeper deeper(*this);
  Ptr value = either();
  while (take_name("if")) {
    Ptr result = make(Kind::condition);
    result->parts.push_back(either());
    result->parts.push_back(std::move(value));
    result->parts.push_back(take_name("else") ? expression() : nullptr);
    value = finish(std::move(result));
  }
  return value;
}

TemplateExpressionPtr TemplateExpressionParser::either() {
  Ptr left = both();
  while (take_name("or")) left = binary(std::move(left), "or", both());
  return left;
}

TemplateExpressionPtr TemplateExpressionParser::both() {
  Ptr left = negation();
  while (take_name("and")) left = binary(std::move(left), "and", negation());
  return left;
}

TemplateExpressionPtr TemplateExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Deeper deeper(*this);
  Ptr result = make(Kind::unary, "not");
  next();
  result->parts.push_back(negation());
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::comparison() {
  Ptr first = sum();
  Ptr result;
  for (;;) {
    std::string name;
    for (const char* symbol : {"==", "!=", "<", ">", "<=", ">="})
      if (is_symbol(symbol)) name = symbol;
    if (is_name("in")) name = "in";
    if (is_name("not") && peek(1).kind == Token::name && peek(1).text == "in") {
      name = "not in";
      next();
    }
    if (name.empty()) break;
    next();
    if (!result) {
      result = make(Kind::compare);
      result->parts.push_back(std::move(first));
    }
    result->operators.push_back(std::move(name));
    result->parts.push_back(sum());
  }
  return result ? finish(std::move(result)) : std::move(first);
}

TemplateExpressionPtr TemplateExpressionParser::sum() {
  Ptr left = joined();
  while (is_symbol("+") || is_symbol("-")) {
    std::string name = next().text;
    left = binary(std::move(left), std::move(name), joined());
  }
  return left;
}

TemplateExpressionPtr TemplateExpressionParser::joined() {
  Ptr first = product();
  if (!is_symbol("~")) return first;
  Ptr result = make(Kind::join);
  result->parts.push_back(std::move(first));
  while (take_symbol("~")) result->parts.push_back(product());
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::product() {
  Ptr left = power();
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    std::string name = next().text;
    left = binary(std::move(left), std::move(name), power());
  }
  return left;
}

TemplateExpressionPtr TemplateExpressionParser::power() {
  Ptr left = unary();
  while (take_symbol("**")) left = binary(std::move(left), "**", unary());
  return left;
}

TemplateExpressionPtr TemplateExpressionParser::unary(bool with_filter) {
  const Deeper deeper(*this);
  Ptr result;
  if (is_symbol("-") || is_symbol("+")) {
    result = make(Kind::unary, peek().text);
    next();
    result->parts.push_back(unary(false));
    result = finish(std::move(result));
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  return with_filter ? filters(std::move(result)) : std::move(result);
}

TemplateExpressionPtr TemplateExpressionParser::primary() {
  Ptr result = make(Kind::constant);
  const std::string& text = peek().text;
  switch (peek().kind) {
    case Token::name: {
      std::string name = text;
      if (name == "true" || name == "True") {
        result->constant = true;
      } else if (name == "false" || name == "False") {
        result->constant = false;
      } else if (name == "none" || name == "None") {
        result->constant = TemplateValue::none();
      } else {
        result = name_expression(std::move(name));
      }
      next();
      return result;
    }
    case Token::string: {
      std::string all;
      while (is(Token::string)) all += next().text;
      result->constant = all;
      return result;
    }
    case Token::integer: {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size())
        fail(fmt::format("the number {} is too large", text));
      result->constant = value;
      next();
      return result;
    }
    case Token::number: {
      double value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size())
        fail(fmt::format("the number {} is too large", text));
      result->constant = value;
      next();
      return result;
    }
    case Token::symbol: return bracketed();
    default: fail(fmt::format("found {}, want an expression", describe()));
  }
}

TemplateExpressionPtr TemplateExpressionParser::bracketed() {
  if (take_symbol("(")) {
    if (take_symbol(")")) return make(Kind::tuple);
    Ptr result = tuple();
    expect_symbol(")");
    return result;
  }
  if (is_symbol("[")) {
    Ptr result = make(Kind::list);
    next();
    while (!take_symbol("]")) {
      if (!result->parts.empty()) expect_symbol(",");
      if (take_symbol("]")) break;
      result->parts.push_back(expression());
    }
    return finish(std::move(result));
  }
  if (is_symbol("{")) {
    Ptr result = make(Kind::dict);
    next();
    while (!take_symbol("}")) {
      if (!result->parts.empty()) expect_symbol(",");
      if (take_symbol("}")) break;
      result->parts.push_back(expression());
      expect_symbol(":");
      result->parts.push_back(expression());
    }
    return finish(std::move(result));
  }
  fail(fmt::format("found {}, want an expression", describe()));
}

TemplateExpressionPtr TemplateExpressionParser::postfix(Ptr base) {
  for (;;) {
    if (is_symbol(".") || is_symbol("[")) {
      base = subscript(std::move(base));
    } else if (is_symbol("(")) {
      base = call(std::move(base));
    } else {
      return base;
    }
  }
}

TemplateExpressionPtr TemplateExpressionParser::subscript(Ptr base) {
  if (take_symbol(".")) {
    if (is(Token::integer)) {
      Ptr result = make(Kind::subscript);
      result->parts.push_back(std::move(base));
      result->parts.push_back(primary());
      return finish(std::move(result));
    }
    Ptr result = make(Kind::attribute);
    result->name = expect(Token::name).text;
    result->parts.push_back(std::move(base));
    return finish(std::move(result));
  }
  Ptr result = make(Kind::subscript);
  expect_symbol("[");
  result->parts.push_back(std::move(base));
  result->parts.push_back(is_symbol(":") ? nullptr : expression());
  if (is_symbol(":")) {
    result->kind = Kind::slice;
    for (int part = 2; part <= 3; ++part) {
      const bool there = take_symbol(":");
      result->parts.push_back(there && !is_symbol(":") && !is_symbol("]") ? expression() : nullptr);
    }
  }
  expect_symbol("]");
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::call(Ptr base) {
  Ptr result = make(Kind::call);
  result->parts.push_back(std::move(base));
  arguments(*result);
  return finish(std::move(result));
}

void TemplateExpressionParser::arguments(Expression& call) {
  expect_symbol("(");
  bool first = true;
  while (!take_symbol(")")) {
    if (!std::exchange(first, false)) expect_symbol(",");
    if (take_symbol(")")) break;
    if (is_symbol("*") || is_symbol("**")) {
      std::string star = next().text;
      call.keywords.emplace_back(std::move(star), expression());
    } else if (is(Token::name) && peek(1).kind == Token::symbol && peek(1).text == "=") {
      std::string name = next().text;
      next();
      call.keywords.emplace_back(std::move(name), expression());
    } else {
      if (!call.keywords.empty()) fail(fmt::format("found {} behind arguments with names, want another", describe()));
      call.parts.push_back(expression());
    }
  }
}

TemplateExpressionPtr TemplateExpressionParser::filters(Ptr base, bool begins_with_name) {
  if (begins_with_name) base = filter(std::move(base));
  for (;;) {
    if (take_symbol("|")) {
      base = filter(std::move(base));
    } else if (is_name("is")) {
      base = test(std::move(base));
    } else if (is_symbol("(")) {
      base = call(std::move(base));
    } else {
      return base;
    }
  }
}

TemplateExpressionPtr TemplateExpressionParser::filter(Ptr base) {
  Ptr result = make(Kind::filter);
  result->name = expect(Token::name).text;
  result->parts.push_back(std::move(base));
  if (is_symbol("(")) arguments(*result);
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::test(Ptr base) {
  expect_name("is");
  const bool negated = take_name("not");
  Ptr result = make(Kind::test);
  result->name = expect(Token::name).text;
  result->parts.push_back(std::move(base));
  if (is_symbol("(")) {
    arguments(*result);
  } else if (is(Token::string) || is(Token::integer) || is(Token::number) || is_symbol("[") || is_symbol("{") ||
             (is(Token::name) && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) fail("found \"is\" behind a test: tests cannot be chained");
    Ptr argument = primary();
    result->parts.push_back(postfix(std::move(argument)));
  }
  result = finish(std::move(result));
  if (!negated) return result;
  Ptr negation = make(Kind::unary, "not");
  negation->parts.push_back(std::move(result));
  return finish(std::move(negation));
}

TemplateExpressionPtr TemplateExpressionParser::target(bool allow_attribute) {
  auto one = [&]() -> Ptr {
    if (take_symbol("(")) {
      Ptr inner = target(false);
      expect_symbol(")");
      return inner;
    }
    Ptr result = make(Kind::name);
    result->name = expect(Token::name).text;
    static constexpr std::string_view kTaken[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kTaken), std::end(kTaken), result->name) != std::end(kTaken))
      fail(fmt::format("\"{}\" cannot be assigned to", result->name));
    if (allow_attribute && take_symbol(".")) {
      Ptr attribute = make(Kind::attribute);
      attribute->name = expect(Token::name).text;
      attribute->parts.push_back(std::move(result));
      return attribute;
    }
    return result;
  };
  const Deeper deeper(*this);
  Ptr first = one();
  if (!is_symbol(",")) return first;
  Ptr result = make(Kind::tuple);
  result->parts.push_back(std::move(first));
  while (take_symbol(",")) {
    if (is_name("in") || is_symbol("=") || is_symbol(")")) break;
    result->parts.push_back(one());
  }
  return result;
}

}  // namespace megalith
