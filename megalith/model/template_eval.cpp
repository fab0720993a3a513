#include "megalith/model/template_eval.h"

#include <algorithm>
#include <map>

#include "megalith/base/error.h"
#include "megalith/model/template_eval_expression.h"
#include "megalith/model/template_function.h"
#include "megalith/model/template_lex.h"
#include "megalith/model/template_loop.h"

namespace megalith {

namespace {

using Kind = TemplateValue::Kind;
using Statement = TemplateStatement;
using ScopePtr = TemplateScopePtr;

class Evaluator;

/// A macro, or the body of a call block, with the scope in which it was defined.
class Macro : public TemplateObject {
 public:
  Macro(Evaluator& evaluator, std::shared_ptr<const TemplateMacroTree> tree, ScopePtr scope)
      : evaluator_(evaluator), tree_(std::move(tree)), scope_(std::move(scope)) {}
  std::string kind_name() const override { return "a macro"; }
  bool is_callable() const override { return true; }
  TemplateValue call(const TemplateCall& call) override;
  std::optional<TemplateValue> attribute(std::string_view name) override;
  MarkedText repr() override {
    return {tree_->name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", tree_->name)};
  }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<const TemplateMacroTree> tree_;
  ScopePtr scope_;
};

class Evaluator : public TemplateExpressionEvaluator {
 public:
  using TemplateExpressionEvaluator::TemplateExpressionEvaluator;

  // Macros hold their scopes and scopes their macros: nobody else would free them.
  ~Evaluator() {
    for (const ScopePtr& scope : scopes_) scope->variables.clear();
  }

  MarkedText run(const TemplateBody& body, std::vector<std::pair<std::string, TemplateValue>> variables) {
    Out out;
    try {
      scopes_.push_back(scope_ = inner());
      for (auto& [name, value] : template_globals()) set(name, std::move(value));
      for (auto& [name, value] : variables) set(name, std::move(value));
      enter(body);
      scopes_.push_back(scope_);
      root_ = scope_;
      execute(body, out);
    } catch (const TemplateError&) { throw; } catch (const UserError& error) {
      context_.fail(error.what());
    }
    return out.take();
  }

  TemplateValue call_macro(const TemplateMacroTree& tree, const ScopePtr& scope, const TemplateCall& call);

 private:
  enum class Flow { next, break_, continue_ };

  // Makes `scope` the current one, and the former one again at the end.
  class Within {
   public:
    Within(Evaluator& evaluator, ScopePtr scope) : evaluator_(evaluator), former_(std::move(scope)) {
      std::swap(evaluator_.scope_, former_);
    }
    ~Within() { std::swap(evaluator_.scope_, former_); }

   private:
    Evaluator& evaluator_;
    ScopePtr former_;
  };

  ScopePtr inner() const { return std::make_shared<Scope>(Scope{scope_, {}}); }
  void set(const std::string& name, TemplateValue value) { scope_->variables.insert_or_assign(name, std::move(value)); }
  // A scope for `body`, with what it sets later.
  void enter(const TemplateBody& body) {
    scope_ = inner();
    begin(body);
  }
  void begin(const TemplateBody& body) {
    context_.charge(4 * std::ssize(body.unset));
    for (const std::string& name : body.unset) set(name, TemplateValue::undefined(name));
  }

  Flow execute(const TemplateBody& body, Out& out) {
    const Deeper deeper(*this);
    for (const auto& statement : body.statements)
      if (const Flow flow = execute(*statement, out); flow != Flow::next) return flow;
    return Flow::next;
  }

  // In a scope of its own.
  Flow execute_within(const TemplateBody& body, Out& out) {
    const Within within(*this, inner());
    begin(body);
    return execute(body, out);
  }

  Flow execute(const Statement& statement, Out& out) {
    context_.at_line(statement.line);
    context_.charge(1);
    switch (statement.kind) {
      case Statement::Kind::text:
        context_.charge_text(statement.text.size());
        out.append(statement.text);
        return Flow::next;
      case Statement::Kind::output:
        for (const auto& value : statement.values) print(out, evaluate(*value));
        return Flow::next;
      case Statement::Kind::for_: return for_(statement, out);
      case Statement::Kind::if_:
        for (const auto& [condition, body] : statement.branches)
          if (evaluate(*condition).truth()) return execute(body, out);
        return execute(statement.other, out);
      case Statement::Kind::set:
        check_namespaces(*statement.targets[0]);
        assign(*statement.targets[0], evaluate(*statement.expression));
        return Flow::next;
      case Statement::Kind::set_block: return captured(statement, out);
      case Statement::Kind::macro: set(statement.macro->name, macro(statement)); return Flow::next;
      case Statement::Kind::call: {
        const TemplateValue caller = macro(statement);
        print(out, call(*statement.expression, &caller));
        return Flow::next;
      }
      case Statement::Kind::filter: return captured(statement, out);
      case Statement::Kind::with: return with(statement, out);
      case Statement::Kind::generation:
        print(out, call_macro(*statement.macro, scope_, TemplateCall(context_, "", "generation")));
        return Flow::next;
      case Statement::Kind::autoescape:
        if (evaluate(*statement.expression).truth())
          context_.fail("{% autoescape %} is not supported: prompts are no HTML");
        return execute_within(statement.body, out);
      case Statement::Kind::block: {
        const Within within(*this, statement.is_scoped ? scope_ : root_);
        return execute_within(statement.body, out);
      }
      case Statement::Kind::break_: return Flow::break_;
      case Statement::Kind::continue_: return Flow::continue_;
      case Statement::Kind::refused: context_.fail(statement.text);
    }
    return Flow::next;
  }

  // The text of a block through its filters, which stand on the name "": printed, or set.
  Flow captured(const Statement& statement, Out& out) {
    TemplateValue value;
    {
      const Within within(*this, inner());
      begin(statement.body);
      Out text;
      if (const Flow flow = execute(statement.body, text); flow != Flow::next) return flow;
      value = text.take();
      if (statement.expression) {
        set("", std::move(value));
        value = evaluate(*statement.expression);
      }
    }
    if (statement.kind == Statement::Kind::set_block)
      assign(*statement.targets[0], std::move(value));
    else
      print(out, value);
    return Flow::next;
  }

  Flow with(const Statement& statement, Out& out) {
    std::vector<TemplateValue> values;
    for (const auto& value : statement.values) values.push_back(evaluate(*value));
    const Within within(*this, inner());
    begin(statement.body);
    for (size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], std::move(values[i]));
    return execute(statement.body, out);
  }

  TemplateValue macro(const Statement& statement) {
    scopes_.push_back(scope_);
    return TemplateValue::of(std::make_shared<Macro>(*this, statement.macro, scope_));
  }

  // The elements for which a loop's condition holds.
  struct Filtered : TemplateIterator {
    Filtered(Evaluator& from, const Statement& of, std::unique_ptr<TemplateIterator> all)
        : evaluator(from), statement(of), scope(from.scope_), elements(std::move(all)) {}
    std::optional<TemplateValue> next() override {
      while (std::optional<TemplateValue> element = elements->next()) {
        const Within within(evaluator, std::make_shared<Scope>(Scope{scope, {}}));
        evaluator.assign(*statement.targets[0], *element);
        if (evaluator.evaluate(*statement.condition).truth()) return element;
      }
      return std::nullopt;
    }
    Evaluator& evaluator;
    const Statement& statement;
    ScopePtr scope;
    std::unique_ptr<TemplateIterator> elements;
  };

  Flow for_(const Statement& statement, Out& out) {
    const TemplateValue elements = evaluate(*statement.expression);
    if (!statement.is_recursive) return loop(statement, elements, out, 0, nullptr);
    out.append(recursive_loop(statement, scope_, elements, 0).string().view());
    return Flow::next;
  }

  // A loop that may run itself again, on other elements: in the scope around it, into a text of its own.
  TemplateValue recursive_loop(const Statement& statement, const ScopePtr& scope, const TemplateValue& elements,
                               int64_t depth) {
    const Within within(*this, scope);
    Out text;
    loop(statement, elements, text, depth,
         [this, &statement, scope](const TemplateValue& inner_elements, int64_t level) {
           return recursive_loop(statement, scope, inner_elements, level);
         });
    return text.take();
  }

  Flow loop(const Statement& statement, const TemplateValue& all, Out& out, int64_t depth, TemplateLoop::Again again) {
    std::unique_ptr<TemplateIterator> elements = template_iterate(context_, all);
    std::optional<int64_t> length = template_length_of(all);
    if (statement.condition) {
      elements = std::make_unique<Filtered>(*this, statement, std::move(elements));
      length = std::nullopt;
    }
    const auto variable =
        std::make_shared<TemplateLoop>(context_, std::move(elements), length, std::move(again), depth);
    struct Clear {
      TemplateLoop& loop;
      ~Clear() { loop.clear(); }
    } clear{*variable};
    // Jinja's loop counts as empty unless an iteration came to its end.
    bool is_empty = true;
    while (std::optional<TemplateValue> element = variable->next()) {
      context_.charge(2);
      const Within within(*this, inner());
      begin(statement.body);
      assign(*statement.targets[0], std::move(*element));
      if (statement.uses_loop) set("loop", TemplateValue::of(variable));
      const Flow flow = execute(statement.body, out);
      if (flow == Flow::break_) break;
      if (flow == Flow::next) is_empty = false;
    }
    return is_empty && !statement.other.statements.empty() ? execute_within(statement.other, out) : Flow::next;
  }

  // Before the value is worked out, as Jinja has it.
  void check_namespaces(const Expression& target) {
    for (const auto& part : target.parts)
      if (target.kind == Expression::Kind::tuple) check_namespaces(*part);
    if (target.kind != Expression::Kind::attribute) return;
    const std::string& name = target.parts[0]->name;
    const TemplateValue object = look_up(name);
    if (!object.as<TemplateNamespace>())
      context_.fail(fmt::format("\"{}.{}\" is assigned to, but \"{}\" is {}: only namespaces can be assigned to", name,
                                target.name, name, object.kind_name()));
  }

  void assign(const Expression& target, TemplateValue value) {
    if (target.kind == Expression::Kind::name) return set(target.name, std::move(value));
    if (target.kind == Expression::Kind::attribute)
      return look_up(target.parts[0]->name).as<TemplateNamespace>()->set(target.name, std::move(value));
    std::vector<TemplateValue> elements = template_elements(context_, value);
    if (elements.size() != target.parts.size())
      context_.fail(fmt::format("{} values are assigned to {} names", elements.size(), target.parts.size()));
    for (size_t i = 0; i < elements.size(); ++i) assign(*target.parts[i], std::move(elements[i]));
  }

  ScopePtr root_;
  std::vector<ScopePtr> scopes_;  // those that macros hold
};

TemplateValue Macro::call(const TemplateCall& call) {
  return evaluator_.call_macro(*tree_, scope_, call.of("the macro", tree_->name.empty() ? "caller" : tree_->name));
}

std::optional<TemplateValue> Macro::attribute(std::string_view name) {
  if (name == "name") return tree_->name.empty() ? TemplateValue::none() : TemplateValue(tree_->name);
  if (name == "catch_kwargs") return tree_->uses_kwargs;
  if (name == "catch_varargs") return tree_->uses_varargs;
  if (name == "caller") return tree_->uses_caller;
  std::vector<TemplateValue> names;
  for (const TemplateParameter& parameter : tree_->parameters) names.emplace_back(parameter.name);
  if (name == "arguments") return TemplateValue::tuple(std::move(names));
  if (name == "explicit_caller") {
    const TemplateValue caller("caller");
    return std::find(names.begin(), names.end(), caller) != names.end();
  }
  return std::nullopt;
}

TemplateValue Evaluator::call_macro(const TemplateMacroTree& tree, const ScopePtr& scope, const TemplateCall& call) {
  const size_t count = tree.parameters.size(), given = std::min(count, call.positional().size());
  const Within within(*this, std::make_shared<Scope>(Scope{scope, {}}));
  context_.charge(static_cast<int64_t>(count + call.positional().size() + call.named().size()));
  begin(tree.body);
  std::map<std::string, TemplateValue> named(call.named().begin(), call.named().end());
  auto take = [&](const std::string& name) {
    const auto entry = named.find(name);
    if (entry == named.end()) return false;
    set(name, std::move(entry->second));
    named.erase(entry);
    return true;
  };
  std::vector<const TemplateParameter*> absent;
  bool has_caller = given == count;
  for (size_t i = 0; i < count; ++i) {
    const TemplateParameter& parameter = tree.parameters[i];
    if (i < given) {
      set(parameter.name, call.positional()[i]);
    } else {
      has_caller |= parameter.name == "caller";
      if (take(parameter.name)) continue;
      set(parameter.name, TemplateValue::undefined(parameter.name));
      absent.push_back(&parameter);
    }
  }
  if (given == count)
    has_caller = std::any_of(tree.parameters.begin(), tree.parameters.end(),
                             [](const TemplateParameter& parameter) { return parameter.name == "caller"; });
  if (tree.uses_caller && !has_caller && !take("caller")) set("caller", TemplateValue::undefined("caller"));
  if (tree.uses_kwargs) {
    // In the order in which they were given.
    TemplateValue::Members others;
    for (const auto& [name, value] : call.named())
      if (named.contains(name)) others.emplace_back(name, value);
    set("kwargs", TemplateValue::dict(std::move(others)));
  } else if (named.contains("caller")) {
    call.fail("got the body of a call block, but does not call caller()");
  } else if (!named.empty()) {
    call.fail(fmt::format("got the argument \"{}\", which it does not have", named.begin()->first));
  }
  if (tree.uses_varargs)
    set("varargs", TemplateValue::tuple(
                       {call.positional().begin() + static_cast<std::ptrdiff_t>(given), call.positional().end()}));
  else if (call.positional().size() > count)
    call.fail(fmt::format("got {} arguments, want at most {}", call.positional().size(), count));
  for (const TemplateParameter* parameter : absent)
    if (parameter->absent) set(parameter->name, evaluate(*parameter->absent));
  Out text;
  execute(tree.body, text);
  return text.take();
}

}  // namespace

MarkedText template_render(const TemplateBody& body, const std::string& template_name,
                           std::vector<std::pair<std::string, TemplateValue>> variables,
                           std::optional<std::time_t> now) {
  const TemplateMemory memory;
  return Evaluator(template_name, now).run(body, std::move(variables));
}

}  // namespace megalith
