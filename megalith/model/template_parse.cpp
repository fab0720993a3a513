#include "megalith/model/template_parse.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_lex.h"
#include "megalith/model/template_parse_expression.h"

namespace megalith {

using Token = TemplateTokenKind;

namespace {

// Published templates nest some ten statements.
constexpr int kMostStatementLevels = 60;

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
    static constexpr std::string_view kEnds[] = {"else",    "elif",   "endfor",    "endif",   "endmacro",
                                                 "endcall", "endset", "endfilter", "endwith", "endgeneration"};
    if (++levels_ > kMostStatementLevels)
      fail(fmt::format("statements nest deeper than {} levels", kMostStatementLevels));
    const int begin = line();
    TemplateBody body;
    while (!at_end()) {
      if (is(Token::text)) {
        StatementPtr text = make(Statement::Kind::text);
        text->text = next().text;
        body.push_back(std::move(text));
      } else if (is(Token::output_begin)) {
        next();
        StatementPtr output = make(Statement::Kind::output);
        output->expression = tuple();
        expect(Token::output_end);
        body.push_back(std::move(output));
      } else {
        const std::string& name = peek(1).text;
        if (std::find(std::begin(kEnds), std::end(kEnds), name) != std::end(kEnds)) break;
        next();
        body.push_back(statement());
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
    if (name == "generation") return generation();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(fmt::format("{{% {} %}} stands outside of a loop", name));
      StatementPtr result = make(name == "break" ? Statement::Kind::break_ : Statement::Kind::continue_);
      next();
      expect(Token::block_end);
      return result;
    }
    fail(
        fmt::format("found the statement \"{}\", supported are for, if, set, macro, call, filter, with, break, "
                    "continue, generation, raw",
                    name));
  }

  StatementPtr for_() {
    StatementPtr result = make(Statement::Kind::for_);
    next();
    result->targets.push_back(target(false));
    expect_name("in");
    result->expression = tuple(false);
    if (take_name("if")) result->condition = expression();
    if (is_name("recursive")) fail("recursive loops are not supported: use a macro");
    expect(Token::block_end);
    ++loops_;
    const bool outer_uses_loop = std::exchange(names_used_.loop, false);
    result->body = statements({"else", "endfor"});
    result->uses_loop = names_used_.loop;
    names_used_.loop |= outer_uses_loop;
    --loops_;
    if (peek(1).text == "else") {
      end("else");
      result->other = statements({"endfor"});
    }
    end("endfor");
    return result;
  }

  StatementPtr if_() {
    StatementPtr result = make(Statement::Kind::if_);
    next();
    for (;;) {
      TemplateExpressionPtr condition = tuple(false);
      expect(Token::block_end);
      TemplateBody body = statements({"elif", "else", "endif"});
      result->branches.emplace_back(std::move(condition), std::move(body));
      if (peek(1).text != "elif") break;
      next();
      next();
    }
    if (peek(1).text == "else") {
      end("else");
      result->other = statements({"endif"});
    }
    end("endif");
    return result;
  }

  StatementPtr set() {
    StatementPtr result = make(Statement::Kind::set);
    next();
    result->targets.push_back(target(true));
    if (take_symbol("=")) {
      result->expression = tuple();
      expect(Token::block_end);
      return result;
    }
    result->kind = Statement::Kind::set_block;
    if (is_symbol("|")) result->expression = filters(name_expression(""));
    expect(Token::block_end);
    result->body = statements({"endset"});
    end("endset");
    return result;
  }

  // A signature in parentheses, and the body up to `end_name`.
  std::shared_ptr<TemplateMacroTree> callable(std::string name, std::string_view end_name, bool has_signature) {
    auto tree = std::make_shared<TemplateMacroTree>();
    tree->name = std::move(name);
    if (has_signature) {
      expect_symbol("(");
      while (!take_symbol(")")) {
        if (!tree->parameters.empty()) expect_symbol(",");
        TemplateParameter parameter{expect(Token::name).text, nullptr};
        if (take_symbol("="))
          parameter.absent = expression();
        else if (!tree->parameters.empty() && tree->parameters.back().absent)
          fail(fmt::format("the parameter \"{}\" has no value, but stands behind one that has", parameter.name));
        tree->parameters.push_back(std::move(parameter));
      }
    }
    return finish_callable(std::move(tree), end_name);
  }

  std::shared_ptr<TemplateMacroTree> finish_callable(std::shared_ptr<TemplateMacroTree> tree,
                                                     std::string_view end_name) {
    expect(Token::block_end);
    const NamesUsed outer = std::exchange(names_used_, {});
    const int outer_loops = std::exchange(loops_, 0);
    tree->body = statements({end_name});
    tree->uses_varargs = names_used_.varargs;
    tree->uses_kwargs = names_used_.kwargs;
    tree->uses_caller = names_used_.caller;
    names_used_ = outer;
    loops_ = outer_loops;
    end(end_name);
    return tree;
  }

  StatementPtr macro() {
    StatementPtr result = make(Statement::Kind::macro);
    next();
    std::string name = expect(Token::name).text;
    result->macro = callable(std::move(name), "endmacro", true);
    return result;
  }

  StatementPtr call() {
    StatementPtr result = make(Statement::Kind::call);
    next();
    auto tree = std::make_shared<TemplateMacroTree>();
    tree->name = "caller";
    if (is_symbol("(")) {
      expect_symbol("(");
      while (!take_symbol(")")) {
        if (!tree->parameters.empty()) expect_symbol(",");
        tree->parameters.push_back({expect(Token::name).text, take_symbol("=") ? expression() : nullptr});
      }
    }
    result->expression = expression();
    if (result->expression->kind != TemplateExpression::Kind::call) fail("{% call %} wants a call of a macro");
    result->macro = finish_callable(std::move(tree), "endcall");
    return result;
  }

  StatementPtr filter_block() {
    StatementPtr result = make(Statement::Kind::filter);
    next();
    result->expression = filters(name_expression(""), true);
    expect(Token::block_end);
    result->body = statements({"endfilter"});
    end("endfilter");
    return result;
  }

  StatementPtr with() {
    StatementPtr result = make(Statement::Kind::with);
    next();
    while (!is(Token::block_end)) {
      if (!result->targets.empty()) expect_symbol(",");
      result->targets.push_back(target(false));
      expect_symbol("=");
      result->values.push_back(expression());
    }
    next();
    result->body = statements({"endwith"});
    end("endwith");
    return result;
  }

  // transformers' marks of what an assistant wrote; they print what is between.
  StatementPtr generation() {
    StatementPtr result = make(Statement::Kind::block);
    next();
    expect(Token::block_end);
    result->body = statements({"endgeneration"});
    end("endgeneration");
    return result;
  }

  int levels_ = 0;
  int loops_ = 0;
};

}  // namespace

TemplateBody template_parse(std::string_view source, const std::string& template_name) {
  return Parser(template_lex(source, template_name), template_name).run();
}

}  // namespace megalith
