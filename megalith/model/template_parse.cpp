#include "megalith/model/template_parse.h"

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/template_lex.h"
#include "megalith/model/template_parse_expression.h"
#include "megalith/model/template_scope.h"

namespace megalith {

using Token = TemplateTokenKind;

namespace {

// Published templates nest some ten statements.
constexpr int kMaxStatementLevels = 60;

class Parser : public TemplateExpressionParser {
 public:
  using TemplateExpressionParser::TemplateExpressionParser;

  TemplateBody run() {
    TemplateBody body = statements({});
    if (!at_end()) fail(fmt::format("found {{% {} %}}, which begins nothing and ends nothing", peek(1).text));
    return body;
  }

 private:
  using Statement = TemplateStatement;
  using StatementPtr = std::unique_ptr<TemplateStatement>;

  StatementPtr make(Statement::Kind kind) const {
    return std::make_unique<Statement>(Statement{.kind = kind, .line = line()});
  }

  // Up to a tag that begins with one of `ends`, or with a name that only ends something.
  TemplateBody statements(const std::vector<std::string_view>& ends) {
    static constexpr std::string_view kEnds[] = {"else",     "elif",     "endfor",        "endif",
                                                 "endmacro", "endcall",  "endset",        "endfilter",
                                                 "endwith",  "endblock", "endgeneration", "endautoescape"};
    if (++levels_ > kMaxStatementLevels)
      fail(fmt::format("statements nest deeper than {} levels", kMaxStatementLevels));
    const int begin = line();
    TemplateBody body;
    while (!at_end()) {
      if (is(Token::text)) {
        StatementPtr text = make(Statement::Kind::text);
        text->text = next().text;
        body.statements.push_back(std::move(text));
      } else if (is(Token::output_begin)) {
        next();
        StatementPtr output = make(Statement::Kind::output);
        output->values.push_back(tuple());
        expect(Token::output_end);
        body.statements.push_back(std::move(output));
      } else {
        const std::string& name = peek(1).text;
        if (std::find(std::begin(kEnds), std::end(kEnds), name) != std::end(kEnds)) break;
        next();
        body.statements.push_back(statement());
      }
    }
    if (!ends.empty()) {
      if (at_end())
        template_fail(template_name(), begin,
                      fmt::format("the template ends within this, want {{% {} %}}", ends.back()));
      if (std::find(ends.begin(), ends.end(), peek(1).text) == ends.end())
        fail(fmt::format("found {{% {} %}}, want {{% {} %}}", peek(1).text, ends.back()));
    }
    --levels_;
    return body;
  }

  // The end of the tag that begins a body, which may have a colon as in Python.
  void begin_body() {
    take_symbol(":");
    expect(Token::block_end);
  }
  TemplateBody body_until(const std::vector<std::string_view>& ends) {
    begin_body();
    return statements(ends);
  }
  TemplateBody whole_body(std::string_view end_name) {
    TemplateBody body = body_until({end_name});
    end(end_name);
    return body;
  }

  // Behind the statements of a body: {% endfor %} and the like.
  void end(std::string_view name) {
    expect(Token::block_begin);
    expect_name(name);
    expect(Token::block_end);
  }

  StatementPtr statement() {
    if (!is(Token::name)) fail(fmt::format("found {} at the start of a tag, want a statement", describe()));
    const std::string name = peek().text;
    if (name == "for") return for_();
    if (name == "if") return if_();
    if (name == "set") return set();
    if (name == "macro") return macro();
    if (name == "call") return call();
    if (name == "filter") return filter_block();
    if (name == "with") return with();
    if (name == "print") return print();
    if (name == "block") return block();
    if (name == "generation") return generation();
    if (name == "autoescape") return autoescape();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(fmt::format("{{% {} %}} stands outside of a loop", name));
      StatementPtr result = make(name == "break" ? Statement::Kind::break_ : Statement::Kind::continue_);
      next();
      expect(Token::block_end);
      return result;
    }
    const std::string message = fmt::format(
        "found the statement \"{}\", supported are for, if, set, macro, call, filter, with, break, continue, "
        "generation, raw, print, block, autoescape",
        name);
    if (name != "include" && name != "import" && name != "from" && name != "extends") fail(message);
    // What it is told does not matter: there are no other files.
    StatementPtr result = make(Statement::Kind::refused);
    result->text = message + ": a chat template has no other files";
    while (!is(Token::block_end) && !at_end()) next();
    expect(Token::block_end);
    return result;
  }

  StatementPtr for_() {
    StatementPtr result = make(Statement::Kind::for_);
    next();
    ++within_loops_;
    result->targets.push_back(target(false));
    refuse_loop(*result->targets[0]);
    expect_name("in");
    result->expression = tuple(false, "recursive");
    if (take_name("if")) result->condition = expression();
    result->is_recursive = take_name("recursive");
    ++loops_;
    result->body = body_until({"else", "endfor"});
    --loops_;
    expect(Token::block_begin);
    if (next().text == "else") {
      result->other = body_until({"endfor"});
      expect(Token::block_begin);
      expect_name("endfor");
    }
    expect(Token::block_end);
    --within_loops_;
    return result;
  }

  StatementPtr if_() {
    StatementPtr result = make(Statement::Kind::if_);
    next();
    for (;;) {
      TemplateExpressionPtr condition = tuple(false);
      TemplateBody body = body_until({"elif", "else", "endif"});
      result->branches.emplace_back(std::move(condition), std::move(body));
      expect(Token::block_begin);
      const std::string name = next().text;
      if (name == "elif") continue;
      if (name == "else") {
        result->other = body_until({"endif"});
        expect(Token::block_begin);
        expect_name("endif");
      }
      expect(Token::block_end);
      return result;
    }
  }

  StatementPtr set() {
    StatementPtr result = make(Statement::Kind::set);
    next();
    result->targets.push_back(target(true));
    refuse_loop(*result->targets[0]);
    if (take_symbol("=")) {
      result->expression = tuple();
      expect(Token::block_end);
      return result;
    }
    result->kind = Statement::Kind::set_block;
    if (is_symbol("|")) result->expression = block_filters(false);
    result->body = whole_body("endset");
    return result;
  }

  // "loop" is the loop's own.
  void refuse_loop(const TemplateExpression& at) const {
    if (within_loops_ && at.kind == TemplateExpression::Kind::name && at.name == "loop")
      fail("\"loop\" cannot be assigned to within a loop");
    if (at.kind == TemplateExpression::Kind::tuple)
      for (const auto& part : at.parts) refuse_loop(*part);
  }

  void signature(TemplateMacroTree& tree) {
    expect_symbol("(");
    while (!take_symbol(")")) {
      if (!tree.parameters.empty()) expect_symbol(",");
      TemplateParameter parameter{expect(Token::name).text, nullptr};
      for (const TemplateParameter& other : tree.parameters)
        if (other.name == parameter.name) fail(fmt::format("the parameter \"{}\" is there twice", parameter.name));
      if (take_symbol("="))
        parameter.absent = expression();
      else if (!tree.parameters.empty() && tree.parameters.back().absent)
        fail(fmt::format("the parameter \"{}\" has no value, but stands behind one that has", parameter.name));
      constexpr size_t kMaxParameters = 250;
      if (tree.parameters.size() == kMaxParameters)
        fail(fmt::format("there are more than {} parameters", kMaxParameters));
      tree.parameters.push_back(std::move(parameter));
    }
  }

  // What is run by a call: a loop around it is none of its own.
  TemplateBody callable_body(std::string_view end_name) {
    const int outer = std::exchange(loops_, 0);
    TemplateBody body = whole_body(end_name);
    loops_ = outer;
    return body;
  }

  StatementPtr macro() {
    StatementPtr result = make(Statement::Kind::macro);
    next();
    result->macro =
        std::make_shared<TemplateMacroTree>(TemplateMacroTree{.name = expect(Token::name).text, .line = line()});
    signature(*result->macro);
    result->macro->body = callable_body("endmacro");
    return result;
  }

  StatementPtr call() {
    StatementPtr result = make(Statement::Kind::call);
    next();
    result->macro = std::make_shared<TemplateMacroTree>(TemplateMacroTree{.name = "", .line = line()});
    if (is_symbol("(")) signature(*result->macro);
    result->expression = expression();
    if (result->expression->kind != TemplateExpression::Kind::call) fail("{% call %} wants a call of a macro");
    result->macro->body = callable_body("endcall");
    return result;
  }

  StatementPtr filter_block() {
    StatementPtr result = make(Statement::Kind::filter);
    next();
    result->expression = block_filters(true);
    result->body = whole_body("endfilter");
    return result;
  }

  StatementPtr with() {
    StatementPtr result = make(Statement::Kind::with);
    next();
    while (!is(Token::block_end) && !is_symbol(":")) {
      if (!result->targets.empty()) expect_symbol(",");
      result->targets.push_back(target(false));
      expect_symbol("=");
      result->values.push_back(expression());
    }
    result->body = whole_body("endwith");
    return result;
  }

  StatementPtr print() {
    StatementPtr result = make(Statement::Kind::output);
    next();
    while (!is(Token::block_end)) {
      if (!result->values.empty()) expect_symbol(",");
      result->values.push_back(expression());
    }
    next();
    return result;
  }

  StatementPtr block() {
    StatementPtr result = make(Statement::Kind::block);
    next();
    const std::string name = expect(Token::name).text;
    if (!blocks_.insert(name).second) fail(fmt::format("the block \"{}\" is there twice", name));
    result->is_scoped = take_name("scoped");
    if (take_name("required")) fail(fmt::format("the block \"{}\" is required from another template", name));
    begin_body();
    const int outer = std::exchange(loops_, 0);
    result->body = statements({"endblock"});
    loops_ = outer;
    expect(Token::block_begin);
    expect_name("endblock");
    take_name(name);
    expect(Token::block_end);
    return result;
  }

  StatementPtr generation() {
    StatementPtr result = make(Statement::Kind::generation);
    next();
    result->macro = std::make_shared<TemplateMacroTree>(TemplateMacroTree{.name = "", .line = line()});
    result->macro->body = callable_body("endgeneration");
    return result;
  }

  StatementPtr autoescape() {
    StatementPtr result = make(Statement::Kind::autoescape);
    next();
    result->expression = expression();
    result->body = whole_body("endautoescape");
    return result;
  }

  int levels_ = 0;
  int loops_ = 0;         // that {% break %} may end
  int within_loops_ = 0;  // be it in a macro
  std::set<std::string> blocks_;
};

}  // namespace

TemplateBody template_parse(std::string_view source, const std::string& template_name) {
  TemplateBody body = Parser(template_lex(source, template_name), template_name).run();
  template_resolve(body, template_name);
  return body;
}

}  // namespace megalith
