// Reads the line of a step, word by word. Internal to loop/transform/steps.cpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/loop/kernel.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/parse_expression.h"
#include "megalith/loop/tag.h"

namespace megalith::loop {

// Thrown where a line does not read as its step wants; the usage says how it would.
struct BadUsage {};

struct TaggedName {
  std::string name;
  std::optional<InameTag> tag;
};

class LineReader {
 public:
  explicit LineReader(const std::string& line) : tokens_(lex(line, "")) {}

  bool at_end() const { return peek().kind == Token::Kind::end || peek().kind == Token::Kind::newline; }
  const Token& peek() const { return tokens_[at_]; }
  bool accept(std::string_view symbol) {
    if (!peek().is(symbol)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) throw BadUsage{};
  }
  void end() const {
    if (!at_end()) throw BadUsage{};
  }
  std::string name() {
    if (peek().kind != Token::Kind::name) throw BadUsage{};
    return std::string(tokens_[at_++].text);
  }
  /// Names up to the next symbol, or one of the words `until`; at least one.
  std::vector<std::string> names(std::initializer_list<std::string_view> until = {}) {
    std::vector<std::string> result;
    while (peek().kind == Token::Kind::name && std::ranges::find(until, peek().text) == until.end()) {
      result.push_back(name());
      accept(",");
    }
    if (result.empty()) throw BadUsage{};
    return result;
  }
  int64_t number() {
    if (at_end()) throw BadUsage{};
    const bool negative = accept("-");
    const std::string_view text = peek().text;
    int64_t value = 0;
    const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    MEGALITH_CHECK(error == std::errc() && last == text.data() + text.size(), "\"{}\" is no whole number", text);
    constexpr int64_t kMost = int64_t{1} << 31;
    MEGALITH_CHECK(value <= kMost, "{} is too large: want at most {}", value, kMost);
    ++at_;
    return negative ? -value : value;
  }
  InameTag tag() {
    std::string text = name();
    if (!at_end() && peek().text.starts_with('.')) text += tokens_[at_++].text;
    const auto tag = tag_of_name(text);
    MEGALITH_CHECK(tag, "there is no tag \"{}\": want {}", text, tag_names());
    return *tag;
  }
  TaggedName tagged_name() {
    TaggedName next{name(), {}};
    if (accept(":")) next.tag = tag();
    return next;
  }
  /// "a:g.0 b".
  std::vector<TaggedName> tagged_names(std::initializer_list<std::string_view> until = {}) {
    std::vector<TaggedName> result;
    while (peek().kind == Token::Kind::name && std::ranges::find(until, peek().text) == until.end()) {
      TaggedName next{name(), {}};
      if (accept(":")) next.tag = tag();
      result.push_back(std::move(next));
      accept(",");
    }
    return result;
  }
  std::vector<TaggedName> tagged_names(size_t count, std::initializer_list<std::string_view> until = {}) {
    std::vector<TaggedName> result = tagged_names(until);
    if (result.size() != count) throw BadUsage{};
    return result;
  }
  /// All that is left of the line, as it stands there.
  std::string rest() {
    std::string text;
    for (; !at_end(); ++at_) text += (peek().space_before && !text.empty() ? " " : "") + std::string(peek().text);
    if (text.empty()) throw BadUsage{};
    return text;
  }
  Expr expression(const Kernel& kernel) {
    const std::vector<std::string> inames = kernel.inames();
    Cursor cursor(tokens_, kernel.name, at_);
    std::map<std::string, size_t> rules;
    for (const Rule& rule : kernel.rules) rules[rule.name] = rule.arguments.size();
    Expr expr = parse_expression(cursor, {inames.begin(), inames.end()}, &rules);
    at_ = cursor.position();
    return expr;
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace megalith::loop
