#include "megalith/model/template_parse_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "megalith/base/stack.h"
#include "megalith/model/template_number.h"

namespace megalith {

using Token = TemplateTokenKind;
using ExpressionKind = TemplateExpression::Kind;

namespace {

// Of brackets and signs in each other, and of operators after each other: "a + b + c" nests to the left. Published
// templates stay below thirty.
constexpr int kMaxLevels = 200;

}  // namespace

// Counts how deep the parser itself is.
class TemplateExpressionParser::Deeper {
 public:
  explicit Deeper(TemplateExpressionParser& parser) : parser_(parser) {
    if (++parser_.levels_ > kMaxLevels || !stack_has_room()) {
      const int levels = --parser_.levels_;
      parser_.fail(fmt::format("an expression nests deeper than {} levels", std::min(levels, kMaxLevels)));
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

TemplateExpressionPtr TemplateExpressionParser::make(ExpressionKind kind, std::string name) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = line(), .name = std::move(name)});
}

TemplateExpressionPtr TemplateExpressionParser::finish(Ptr expression) const {
  int levels = 0;
  for (const Ptr& part : expression->parts)
    if (part) levels = std::max(levels, part->levels);
  for (const auto& [name, part] : expression->keywords) levels = std::max(levels, part->levels);
  expression->levels = levels + 1;
  if (expression->levels > kMaxLevels) fail(fmt::format("an expression nests deeper than {} levels", kMaxLevels));
  return expression;
}

TemplateExpressionPtr TemplateExpressionParser::binary(Ptr left, std::string name, Ptr right) {
  Ptr result = make(ExpressionKind::binary, std::move(name));
  result->parts.push_back(std::move(left));
  result->parts.push_back(std::move(right));
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::tuple(bool with_condition, std::string_view end_name) {
  Ptr first = with_condition ? expression() : either();
  if (!is_symbol(",")) return first;
  Ptr result = make(ExpressionKind::tuple);
  result->parts.push_back(std::move(first));
  while (take_symbol(",")) {
    if (is(Token::block_end) || is(Token::output_end) || is_symbol(")")) break;
    if (!end_name.empty() && is_name(end_name)) break;
    result->parts.push_back(with_condition ? expression() : either());
  }
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::expression() {
  const Deeper deeper(*this);
  Ptr value = either();
  while (take_name("if")) {
    Ptr result = make(ExpressionKind::condition);
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
  Ptr result = make(ExpressionKind::unary, "not");
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
      result = make(ExpressionKind::compare);
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
  Ptr result = make(ExpressionKind::join);
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
    result = make(ExpressionKind::unary, peek().text);
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
  if (is(Token::symbol)) return bracketed();
  if (!is(Token::name)) return constant();
  Ptr result = make(ExpressionKind::constant);
  std::string name = next().text;
  if (name == "true" || name == "True")
    result->constant = true;
  else if (name == "false" || name == "False")
    result->constant = false;
  else if (name == "none" || name == "None")
    result->constant = TemplateValue::none();
  else {
    result->kind = ExpressionKind::name;
    result->name = std::move(name);
  }
  return result;
}

TemplateExpressionPtr TemplateExpressionParser::constant() {
  Ptr result = make(ExpressionKind::constant);
  if (is(Token::string)) {
    std::string all;
    while (is(Token::string)) all += next().text;
    result->constant = all;
    return result;
  }
  if (!is(Token::integer) && !is(Token::number)) fail(fmt::format("found {}, want an expression", describe()));
  std::string digits = peek().text;
  std::erase(digits, '_');
  if (is(Token::number)) {
    result->constant = template_parse_number(digits).value();
  } else {
    const std::optional<TemplateValue> value = template_parse_integer(digits, 0);
    if (!value) fail(fmt::format("the number {}... is too large", digits.substr(0, 40)));
    result->constant = *value;
  }
  next();
  return result;
}

TemplateExpressionPtr TemplateExpressionParser::bracketed() {
  if (take_symbol("(")) {
    if (take_symbol(")")) return make(ExpressionKind::tuple);
    Ptr result = tuple();
    expect_symbol(")");
    return result;
  }
  if (is_symbol("[")) {
    Ptr result = make(ExpressionKind::list);
    next();
    while (!take_symbol("]")) {
      if (!result->parts.empty()) expect_symbol(",");
      if (take_symbol("]")) break;
      result->parts.push_back(expression());
    }
    return finish(std::move(result));
  }
  if (is_symbol("{")) {
    Ptr result = make(ExpressionKind::dict);
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
      Ptr result = make(ExpressionKind::subscript);
      result->parts.push_back(std::move(base));
      result->parts.push_back(primary());
      return finish(std::move(result));
    }
    Ptr result = make(ExpressionKind::attribute);
    result->name = expect(Token::name).text;
    result->parts.push_back(std::move(base));
    return finish(std::move(result));
  }
  Ptr result = make(ExpressionKind::subscript);
  expect_symbol("[");
  result->parts.push_back(std::move(base));
  std::vector<Ptr> keys;
  for (bool first = true; !is_symbol("]"); first = false) {
    if (!first) expect_symbol(",");
    if (first && is_symbol(":")) {
      keys.push_back(nullptr);
      break;
    }
    keys.push_back(expression());
    if (is_symbol(":")) break;
  }
  if (is_symbol(":")) {
    if (keys.size() > 1) fail("found \":\" behind several keys, want \"]\"");
    result->kind = ExpressionKind::slice;
    result->parts.push_back(std::move(keys[0]));
    for (int part = 2; part <= 3; ++part) {
      const bool there = take_symbol(":");
      result->parts.push_back(there && !is_symbol(":") && !is_symbol("]") ? expression() : nullptr);
    }
  } else if (keys.size() == 1) {
    result->parts.push_back(std::move(keys[0]));
  } else {  // a tuple of keys
    Ptr key = make(ExpressionKind::tuple);
    key->parts = std::move(keys);
    result->parts.push_back(finish(std::move(key)));
  }
  expect_symbol("]");
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::call(Ptr base) {
  Ptr result = make(ExpressionKind::call);
  result->parts.push_back(std::move(base));
  arguments(*result);
  return finish(std::move(result));
}

void TemplateExpressionParser::arguments(Expression& call) {
  expect_symbol("(");
  std::set<std::string> names;
  auto refuse_behind = [&](std::initializer_list<const char*> stars) {
    for (const char* star : stars)
      if (names.contains(star)) fail(fmt::format("found {} behind an argument with {}", describe(), star));
  };
  bool first = true;
  while (!take_symbol(")")) {
    if (!std::exchange(first, false)) expect_symbol(",");
    if (take_symbol(")")) break;
    const bool is_named = is(Token::name) && peek(1).kind == Token::symbol && peek(1).text == "=";
    if (!is_named && !is_symbol("*") && !is_symbol("**")) {
      if (!names.empty()) fail(fmt::format("found {} behind arguments with names, want another", describe()));
      call.parts.push_back(expression());
      continue;
    }
    refuse_behind({"**"});
    if (is_symbol("*")) refuse_behind({"*"});
    std::string name = next().text;
    if (!names.insert(name).second) fail(fmt::format("the argument \"{}\" is there twice", name));
    if (is_named) next();
    call.keywords.emplace_back(std::move(name), expression());
  }
}

std::string TemplateExpressionParser::dotted_name() {
  std::string name = expect(Token::name).text;
  while (take_symbol(".")) name += "." + expect(Token::name).text;
  return name;
}

TemplateExpressionPtr TemplateExpressionParser::block_filters(bool begins_with_name) {
  Ptr base = make(ExpressionKind::name);  // of no name: the text of the block
  if (begins_with_name) base = filter(std::move(base));
  while (take_symbol("|")) base = filter(std::move(base));
  return base;
}

TemplateExpressionPtr TemplateExpressionParser::filters(Ptr base) {
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
  Ptr result = make(ExpressionKind::filter);
  result->name = dotted_name();
  result->parts.push_back(std::move(base));
  if (is_symbol("(")) arguments(*result);
  return finish(std::move(result));
}

TemplateExpressionPtr TemplateExpressionParser::test(Ptr base) {
  expect_name("is");
  const bool negated = take_name("not");
  Ptr result = make(ExpressionKind::test);
  result->name = dotted_name();
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
  Ptr negation = make(ExpressionKind::unary, "not");
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
    Ptr result = make(ExpressionKind::name);
    result->name = expect(Token::name).text;
    static constexpr std::string_view kTaken[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kTaken), std::end(kTaken), result->name) != std::end(kTaken))
      fail(fmt::format("\"{}\" cannot be assigned to", result->name));
    if (allow_attribute && take_symbol(".")) {
      Ptr attribute = make(ExpressionKind::attribute);
      attribute->name = expect(Token::name).text;
      attribute->parts.push_back(std::move(result));
      return attribute;
    }
    return result;
  };
  const Deeper deeper(*this);
  Ptr first = one();
  if (!is_symbol(",")) return first;
  Ptr result = make(ExpressionKind::tuple);
  result->parts.push_back(std::move(first));
  while (take_symbol(",")) {
    if (is_name("in") || is(Token::block_end) || is_symbol(")")) break;
    result->parts.push_back(one());
  }
  return result;
}

}  // namespace megalith
