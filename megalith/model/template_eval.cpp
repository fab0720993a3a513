#include "megalith/model/template_eval.h"

#include <algorithm>
#include <unordered_map>

#include "megalith/base/error.h"
#include "megalith/base/stack.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_lex.h"

namespace megalith {

namespace {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, TemplateValue> variables;
};
using ScopePtr = std::shared_ptr<Scope>;

}  // namespace

/// A macro with the scope in which it was defined.
struct TemplateMacro {
  std::shared_ptr<const TemplateMacroTree> tree;
  ScopePtr scope;
};

namespace {

using Kind = TemplateValue::Kind;
using Expression = TemplateExpression;
using Statement = TemplateStatement;

// Of expressions and statements in each other, through calls of macros too. Each takes some hundred bytes of stack,
// with sanitizers a few thousand.
constexpr int kMostLevels = 600;

class Evaluator {
 public:
  Evaluator(const std::string& template_name, std::optional<std::time_t> now) : context_(template_name, now) {}

  // Macros hold their scopes and scopes their macros, namespaces may hold themselves: nobody else would free them.
  ~Evaluator() {
    for (const ScopePtr& scope : scopes_) scope->variables.clear();
    for (const auto& space : namespaces_) space->members.clear();
  }

  MarkedText run(const TemplateBody& body, std::vector<std::pair<std::string, TemplateValue>> variables) {
    enter();
    for (std::string_view name : template_functions())
      set(std::string(name), TemplateValue::function(std::string(name)));
    for (auto& [name, value] : variables) set(name, std::move(value));
    enter();
    MarkedText out;
    try {
      execute(body, out);
    } catch (const TemplateError&) { throw; } catch (const UserError& error) {
      context_.fail(error.what());
    }
    return out;
  }

 private:
  enum class Flow { next, break_, continue_ };

  class Deeper {
   public:
    explicit Deeper(Evaluator& evaluator) : evaluator_(evaluator) {
      if (++evaluator_.levels_ > kMostLevels || !stack_has_room()) {
        const int levels = --evaluator_.levels_;
        evaluator_.context_.fail(fmt::format("the template nests deeper than {} levels: a macro may call itself",
                                             levels < kMostLevels ? levels : kMostLevels));
      }
    }
    ~Deeper() { --evaluator_.levels_; }

   private:
    Evaluator& evaluator_;
  };

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
  void enter() { scopes_.push_back(scope_ = inner()); }
  void set(const std::string& name, TemplateValue value) { scope_->variables.insert_or_assign(name, std::move(value)); }

  TemplateValue look_up(const std::string& name) {
    for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get())
      if (const auto entry = scope->variables.find(name); entry != scope->variables.end()) return entry->second;
    return TemplateValue::undefined(name);
  }

  void print(MarkedText& out, const MarkedView& text) {
    context_.check_length(out.text.size() + text.text.size());
    context_.charge_text(text.text.size());
    out.append(text);
  }

  Flow execute(const TemplateBody& body, MarkedText& out) {
    const Deeper deeper(*this);
    for (const auto& statement : body)
      if (const Flow flow = execute(*statement, out); flow != Flow::next) return flow;
    return Flow::next;
  }

  MarkedText captured(const TemplateBody& body) {
    MarkedText text;
    execute(body, text);
    return text;
  }

  Flow execute(const Statement& statement, MarkedText& out) {
    context_.at_line(statement.line);
    context_.charge(1);
    switch (statement.kind) {
      case Statement::Kind::text: print(out, {statement.text}); return Flow::next;
      case Statement::Kind::output: print(out, evaluate(*statement.expression).to_text().view()); return Flow::next;
      case Statement::Kind::for_: return loop(statement, out);
      case Statement::Kind::if_:
        for (const auto& [condition, body] : statement.branches)
          if (evaluate(*condition).truth()) return execute(body, out);
        return execute(statement.other, out);
      case Statement::Kind::set: assign(*statement.targets[0], evaluate(*statement.expression)); return Flow::next;
      case Statement::Kind::set_block: {
        TemplateValue value;
        {
          const Within within(*this, inner());
          value = filtered(statement);
        }
        assign(*statement.targets[0], std::move(value));
        return Flow::next;
      }
      case Statement::Kind::macro:
        scopes_.push_back(scope_);
        set(statement.macro->name,
            TemplateValue::of(std::make_shared<const TemplateMacro>(TemplateMacro{statement.macro, scope_})));
        return Flow::next;
      case Statement::Kind::call: {
        scopes_.push_back(scope_);
        const TemplateValue caller =
            TemplateValue::of(std::make_shared<const TemplateMacro>(TemplateMacro{statement.macro, scope_}));
        print(out, call(*statement.expression, &caller).to_text().view());
        return Flow::next;
      }
      case Statement::Kind::filter: {
        const Within within(*this, inner());
        print(out, filtered(statement).to_text().view());
        return Flow::next;
      }
      case Statement::Kind::with: {
        const ScopePtr scope = inner();
        std::vector<TemplateValue> values;
        for (const auto& value : statement.values) values.push_back(evaluate(*value));
        const Within within(*this, scope);
        for (size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], std::move(values[i]));
        return execute(statement.body, out);
      }
      case Statement::Kind::block: return execute(statement.body, out);
      case Statement::Kind::break_: return Flow::break_;
      case Statement::Kind::continue_: return Flow::continue_;
    }
    return Flow::next;
  }

  // The body's text through the filters, which stand on the name "".
  TemplateValue filtered(const Statement& statement) {
    MarkedText text = captured(statement.body);
    if (!statement.expression) return text;
    set("", std::move(text));
    return evaluate(*statement.expression);
  }

  Flow loop(const Statement& statement, MarkedText& out) {
    std::vector<TemplateValue> elements = template_elements(context_, evaluate(*statement.expression));
    if (statement.condition) {
      std::vector<TemplateValue> kept;
      for (TemplateValue& element : elements) {
        const Within within(*this, inner());
        assign(*statement.targets[0], element);
        if (evaluate(*statement.condition).truth()) kept.push_back(std::move(element));
      }
      elements = std::move(kept);
    }
    if (elements.empty()) {
      const Within within(*this, inner());
      return execute(statement.other, out);
    }
    for (size_t i = 0; i < elements.size(); ++i) {
      const Within within(*this, inner());
      context_.charge(1);
      assign(*statement.targets[0], elements[i]);
      if (statement.uses_loop) set("loop", loop_variable(elements, i));
      if (execute(statement.body, out) == Flow::break_) break;
    }
    return Flow::next;
  }

  TemplateValue loop_variable(const std::vector<TemplateValue>& elements, size_t index) {
    context_.charge(10);
    const auto i = static_cast<int64_t>(index), length = std::ssize(elements);
    std::vector<std::pair<TemplateValue, TemplateValue>> members = {{"index", i + 1},
                                                                    {"index0", i},
                                                                    {"revindex", length - i},
                                                                    {"revindex0", length - i - 1},
                                                                    {"first", i == 0},
                                                                    {"last", i + 1 == length},
                                                                    {"length", length},
                                                                    {"depth", 1},
                                                                    {"depth0", 0}};
    if (i > 0) members.emplace_back("previtem", elements[index - 1]);
    if (i + 1 < length) members.emplace_back("nextitem", elements[index + 1]);
    return TemplateValue::dict(std::move(members));
  }

  void assign(const Expression& target, TemplateValue value) {
    if (target.kind == Expression::Kind::name) return set(target.name, std::move(value));
    if (target.kind == Expression::Kind::attribute) {
      const TemplateValue object = look_up(target.parts[0]->name);
      if (!object.is(Kind::namespace_))
        context_.fail(fmt::format("\"{}.{}\" is assigned to, but \"{}\" is {}: only namespaces can be assigned to",
                                  target.parts[0]->name, target.name, target.parts[0]->name, object.kind_name()));
      if (TemplateValue* member = object.space()->find(target.name))
        *member = std::move(value);
      else
        object.space()->members.emplace_back(target.name, std::move(value));
      context_.charge(std::ssize(object.space()->members));
      return;
    }
    std::vector<TemplateValue> elements = template_elements(context_, value);
    if (elements.size() != target.parts.size())
      context_.fail(fmt::format("{} values are assigned to {} names", elements.size(), target.parts.size()));
    for (size_t i = 0; i < elements.size(); ++i) assign(*target.parts[i], std::move(elements[i]));
  }

  TemplateValue evaluate(const Expression& e) {
    const Deeper deeper(*this);
    context_.at_line(e.line);
    context_.charge(1);
    auto part = [&](size_t i) { return evaluate(*e.parts[i]); };
    switch (e.kind) {
      case Expression::Kind::constant: return e.constant;
      case Expression::Kind::name: return look_up(e.name);
      case Expression::Kind::list:
      case Expression::Kind::tuple: return TemplateValue::list(parts(e, 0), e.kind == Expression::Kind::tuple);
      case Expression::Kind::dict: {
        std::vector<std::pair<TemplateValue, TemplateValue>> members;
        for (size_t i = 0; i < e.parts.size(); i += 2) {
          TemplateValue key = part(i);
          members.emplace_back(std::move(key), part(i + 1));
        }
        return TemplateValue::dict(std::move(members));
      }
      case Expression::Kind::attribute: return template_attribute(context_, part(0), e.name);
      case Expression::Kind::subscript: {
        const TemplateValue object = part(0);
        return template_subscript(context_, object, part(1));
      }
      case Expression::Kind::slice: return slice(e);
      case Expression::Kind::call: return call(e, nullptr);
      case Expression::Kind::filter: {
        const TemplateValue value = part(0);
        return template_filter(e.name, value, arguments(e, fmt::format("the filter \"{}\"", e.name)));
      }
      case Expression::Kind::test: {
        const TemplateValue value = part(0);
        return template_test(e.name, value, arguments(e, fmt::format("the test \"{}\"", e.name)));
      }
      case Expression::Kind::unary:
        if (e.name == "not") return !part(0).truth();
        return template_binary(context_, e.name, 0, part(0));
      case Expression::Kind::binary: {
        TemplateValue left = part(0);
        if (e.name == "and") return left.truth() ? part(1) : left;
        if (e.name == "or") return left.truth() ? left : part(1);
        return template_binary(context_, e.name, left, part(1));
      }
      case Expression::Kind::compare: {
        TemplateValue left = part(0);
        for (size_t i = 0; i < e.operators.size(); ++i) {
          TemplateValue right = part(i + 1);
          if (!template_compare(context_, e.operators[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
      case Expression::Kind::join: {
        MarkedText text;
        for (size_t i = 0; i < e.parts.size(); ++i) { print(text, part(i).to_text().view()); }
        return text;
      }
      case Expression::Kind::condition:
        if (part(0).truth()) return part(1);
        return e.parts[2] ? part(2) : TemplateValue::undefined("the other side of a condition");
    }
    return {};
  }

  TemplateValue slice(const Expression& e) {
    const TemplateValue object = evaluate(*e.parts[0]);
    TemplateValue bounds[3];
    for (size_t i = 0; i < 3; ++i)
      if (e.parts[i + 1]) bounds[i] = evaluate(*e.parts[i + 1]);
    auto bound = [&](size_t i) { return e.parts[i + 1] ? &bounds[i] : nullptr; };
    return template_slice_of(context_, object, bound(0), bound(1), bound(2));
  }

  std::vector<TemplateValue> parts(const Expression& e, size_t first) {
    std::vector<TemplateValue> values;
    for (size_t i = first; i < e.parts.size(); ++i) values.push_back(evaluate(*e.parts[i]));
    return values;
  }

  TemplateCall arguments(const Expression& e, std::string what) {
    std::vector<TemplateValue> positional = parts(e, 1);
    TemplateCall::Named named;
    for (const auto& [name, expression] : e.keywords) {
      TemplateValue value = evaluate(*expression);
      if (name == "*") {
        for (TemplateValue& element : template_elements(context_, value)) positional.push_back(std::move(element));
      } else if (name == "**") {
        if (!value.is(Kind::dict))
          context_.fail(fmt::format("{} is given as \"**\", want a dictionary", value.describe()));
        for (const auto& [key, member] : value.dict().members) named.emplace_back(key.to_text().text, member);
      } else {
        named.emplace_back(name, std::move(value));
      }
    }
    context_.at_line(e.line);
    return TemplateCall(context_, std::move(what), std::move(positional), std::move(named));
  }

  TemplateValue call(const Expression& e, const TemplateValue* caller) {
    const TemplateValue callee = evaluate(*e.parts[0]);
    switch (callee.kind()) {
      case Kind::macro:
        return call_macro(*callee.macro(), arguments(e, fmt::format("the macro \"{}\"", callee.macro()->tree->name)),
                          caller);
      case Kind::method:
        return template_method(callee.method().name, callee.method().object,
                               arguments(e, fmt::format("the method \"{}\"", callee.method().name)));
      case Kind::function: {
        const TemplateCall what = arguments(e, fmt::format("{}()", callee.name()));
        return callee.name() == "namespace" ? make_namespace(what) : template_function(callee.name(), what);
      }
      default: context_.at_line(e.line); context_.fail(fmt::format("{} is called", callee.describe()));
    }
  }

  TemplateValue make_namespace(const TemplateCall& call) {
    auto space = std::make_shared<TemplateNamespace>();
    namespaces_.push_back(space);
    if (call.positional().size() > 1) call.fail("got more than one dictionary");
    if (!call.positional().empty()) {
      if (!call.at(0).is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", call.at(0).describe()));
      for (const auto& [key, value] : call.at(0).dict().members) space->members.emplace_back(key.to_text().text, value);
    }
    for (const auto& [name, value] : call.named()) {
      if (TemplateValue* member = space->find(name))
        *member = value;
      else
        space->members.emplace_back(name, value);
    }
    return TemplateValue::of(std::move(space));
  }

  TemplateValue call_macro(const TemplateMacro& macro, const TemplateCall& call, const TemplateValue* caller) {
    const Deeper deeper(*this);
    const TemplateMacroTree& tree = *macro.tree;
    const size_t count = tree.parameters.size();
    if (call.positional().size() > count && !tree.uses_varargs)
      call.fail(fmt::format("got {} arguments, want at most {}", call.positional().size(), count));
    const Within within(*this, std::make_shared<Scope>(Scope{macro.scope, {}}));
    std::vector<std::pair<TemplateValue, TemplateValue>> others;
    for (const auto& [name, value] : call.named()) {
      const auto at = std::find_if(tree.parameters.begin(), tree.parameters.end(),
                                   [key = std::string_view(name)](const auto& p) { return p.name == key; });
      if (at == tree.parameters.end()) {
        if (!tree.uses_kwargs && name != "caller")
          call.fail(fmt::format("got the argument \"{}\", which it does not have", name));
        others.emplace_back(name, value);
      } else if (static_cast<size_t>(at - tree.parameters.begin()) < call.positional().size()) {
        call.fail(fmt::format("got the argument \"{}\" twice", name));
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const TemplateParameter& parameter = tree.parameters[i];
      if (const TemplateValue* value = call.find(i, parameter.name))
        set(parameter.name, *value);
      else
        set(parameter.name, parameter.absent ? evaluate(*parameter.absent) : TemplateValue::undefined(parameter.name));
    }
    if (tree.uses_varargs) {
      const auto begin =
          call.positional().begin() + static_cast<std::ptrdiff_t>(std::min(count, call.positional().size()));
      set("varargs", TemplateValue::list({begin, call.positional().end()}, true));
    }
    if (caller && !tree.uses_caller) call.fail("got the body of a call block, but does not call caller()");
    if (caller) set("caller", *caller);
    if (tree.uses_kwargs) set("kwargs", TemplateValue::dict(std::move(others)));
    return captured(tree.body);
  }

  TemplateContext context_;
  ScopePtr scope_;
  std::vector<ScopePtr> scopes_;  // those that macros hold
  std::vector<std::shared_ptr<TemplateNamespace>> namespaces_;
  int levels_ = 0;
};

}  // namespace

MarkedText template_render(const TemplateBody& body, const std::string& template_name,
                           std::vector<std::pair<std::string, TemplateValue>> variables,
                           std::optional<std::time_t> now) {
  return Evaluator(template_name, now).run(body, std::move(variables));
}

}  // namespace megalith
