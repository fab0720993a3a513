// The expressions of chat templates, by recursive descent; template_parse.cpp builds statements on it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/template_lex.h"
#include "megalith/model/template_tree.h"

namespace megalith {

class TemplateExpressionParser {
 public:
  TemplateExpressionParser(std::vector<TemplateToken> tokens, const std::string& template_name)
      : tokens_(std::move(tokens)), template_name_(template_name) {}

 protected:
  using Expression = TemplateExpression;
  using Ptr = TemplateExpressionPtr;

  // Tokens.
  const TemplateToken& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const TemplateToken& next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  int line() const { return peek().line; }
  const std::string& template_name() const { return template_name_; }
  bool at_end() const { return peek().kind == TemplateTokenKind::end; }
  bool is(TemplateTokenKind kind) const { return peek().kind == kind; }
  bool is_name(std::string_view name) const { return is(TemplateTokenKind::name) && peek().text == name; }
  bool is_symbol(std::string_view symbol) const { return is(TemplateTokenKind::symbol) && peek().text == symbol; }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }
  bool take_symbol(std::string_view symbol) { return is_symbol(symbol) && (next(), true); }
  const TemplateToken& expect(TemplateTokenKind kind);
  void expect_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  std::string describe() const;
  [[noreturn]] void fail(const std::string& message) const;

  // Expressions, from the loosest binding to the tightest.
  Ptr tuple(bool with_condition = true, std::string_view end_name = "");  // one, or several with commas
  Ptr expression();                                                       // a if b else c
  Ptr block_filters(bool begins_with_name);                               // of {% filter a | b %} and {% set x | a %}
  Ptr target(bool allow_attribute);                                       // of an assignment

 private:
  class Deeper;
  Ptr make(Expression::Kind kind, std::string name = "") const;
  Ptr finish(Ptr expression) const;  // counts its levels
  Ptr binary(Ptr left, std::string name, Ptr right);
  Ptr constant();
  std::string dotted_name();
  Ptr either();
  Ptr both();
  Ptr negation();
  Ptr comparison();
  Ptr sum();
  Ptr joined();
  Ptr product();
  Ptr power();
  Ptr unary(bool with_filter = true);
  Ptr primary();
  Ptr bracketed();
  Ptr postfix(Ptr base);
  Ptr subscript(Ptr base);
  Ptr call(Ptr base);
  Ptr filters(Ptr base);
  Ptr filter(Ptr base);
  Ptr test(Ptr base);
  void arguments(Expression& call);

  std::vector<TemplateToken> tokens_;
  const std::string& template_name_;
  size_t at_ = 0;
  int levels_ = 0;
};

}  // namespace megalith
