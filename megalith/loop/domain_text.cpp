#include "megalith/loop/domain_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "megalith/loop/function.h"
#include "megalith/loop/recall.h"

namespace megalith::loop {

namespace {
// isl's parser recurses on brackets and its set operations are exponential in the number of constraints.
constexpr int kMaxDomainNesting = 32;
constexpr size_t kMaxDomainTokens = 2000;
constexpr double kLargestNumber = 1e12;

constexpr std::string_view kDomainWords[] = {"and",  "or",   "not",   "exists",  "mod", "floor",
                                             "ceil", "true", "false", "implies", "max", "min"};
constexpr std::string_view kDomainSymbols[] = {"<=", ">=", "==", "!=", "&&", "||", "<<", "+", "-", "*", "/",
                                               "<",  ">",  "=",  "(",  ")",  ",",  ":",  "%", "&", "|", "!"};

void remember(std::vector<std::string>& names, std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}
}  // namespace

std::string DomainText::text() const {
  return fmt::format("{{ [{}]{}{} }}", fmt::join(inames, ", "), body.empty() ? "" : " : ", body);
}

DomainText read_constraints(Cursor& cursor, std::string_view until) {
  DomainText result;
  std::vector<std::string> bound;  // by `exists`
  bool in_exists = false;
  int nesting = 0;
  size_t count = 0;
  for (;; ++count) {
    const Token& token = cursor.peek();
    if (until.empty() ? token.kind == Token::Kind::newline : token.is(until) && nesting == 0) break;
    if (count == kMaxDomainTokens) cursor.fail_at(token, "the constraints are too long");
    if (token.kind == Token::Kind::number) {
      if (!token.is_integer || std::strtod(std::string(token.text).c_str(), nullptr) > kLargestNumber)
        cursor.fail("a whole number of reasonable size");
    } else if (token.kind == Token::Kind::name) {
      if (token.text == "exists") {
        in_exists = true;
      } else if (std::ranges::find(kDomainWords, token.text) == std::end(kDomainWords)) {
        if (is_reserved_name(token.text)) cursor.fail("an iname or a parameter");
        if (in_exists)
          remember(bound, token.text);
        else if (std::ranges::find(bound, token.text) == bound.end())
          remember(result.names, token.text);
      }
    } else if (token.kind != Token::Kind::symbol ||
               std::ranges::find(kDomainSymbols, token.text) == std::end(kDomainSymbols)) {
      cursor.fail(until.empty() ? "a constraint" : fmt::format("a constraint or \"{}\"", until));
    }
    if (token.is(":")) in_exists = false;
    if (token.is("(") && ++nesting > kMaxDomainNesting) cursor.fail_at(token, "the constraints are nested too deeply");
    if (token.is(")")) nesting = std::max(0, nesting - 1);
    if (token.space_before && !result.body.empty()) result.body += ' ';
    result.body += token.text;
    cursor.next();
  }
  return result;
}

DomainText read_domain(Cursor& cursor) {
  if (cursor.accept("[")) {  // isl's own list of parameters: we find them ourselves
    while (!cursor.accept("]")) {
      cursor.expect_name("a parameter");
      if (!cursor.peek().is("]")) cursor.expect(",");
    }
    cursor.expect("->");
  }
  cursor.expect("{");
  cursor.expect("[");
  std::vector<std::string> inames;
  while (!cursor.accept("]")) {
    const Token& token = cursor.peek();
    const std::string iname = cursor.expect_name("an iname");
    if (std::ranges::find(inames, iname) != inames.end())
      cursor.fail_at(token, fmt::format("the iname \"{}\" is listed twice", iname));
    inames.push_back(iname);
    if (!cursor.peek().is("]")) cursor.expect(",");
  }
  DomainText result;
  if (cursor.accept(":")) result = read_constraints(cursor, "}");
  cursor.expect("}");
  std::erase_if(result.names, [&](const std::string& name) { return std::ranges::find(inames, name) != inames.end(); });
  result.inames = std::move(inames);
  return result;
}

std::string substitute_names(std::string_view body, const std::map<std::string, int64_t>& values) {
  const std::vector<Token> tokens = lex(body, "");
  std::string result;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.kind == Token::Kind::newline || token.kind == Token::Kind::end) continue;
    if (token.space_before && !result.empty()) result += ' ';
    const auto value = token.kind == Token::Kind::name ? values.find(std::string(token.text)) : values.end();
    if (value == values.end()) {
      result += token.text;
    } else {
      if (i > 0 && (tokens[i - 1].kind == Token::Kind::number || tokens[i - 1].is(")")))
        result += " * ";  // `2n` is 2 * n
      const std::string number = std::to_string(value->second);
      // isl reads "(64) mod 16" and not "64 mod 16".
      const bool is_divided = tokens[i + 1].is("mod") || tokens[i + 1].is("%");
      result += value->second < 0 || is_divided ? "(" + number + ")" : number;
    }
  }
  return result;
}

DomainText read_domain(std::string_view text, const std::string& kernel) {
  thread_local Recall<DomainText> known(8192);  // each step asks what inames a kernel has, many times
  std::string question(text);
  if (const DomainText* domain = known.find(question)) return *domain;
  const std::vector<Token> tokens = lex(text, kernel);
  Cursor cursor(tokens, kernel);
  DomainText result = read_domain(cursor);
  if (cursor.peek().kind != Token::Kind::newline) cursor.fail("the end of the domain");
  known.keep(std::move(question), result);
  return result;
}

}  // namespace megalith::loop
