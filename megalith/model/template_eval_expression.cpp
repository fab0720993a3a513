#include "megalith/model/template_eval_expression.h"

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/stack.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"

namespace megalith {

namespace {

using Kind = TemplateValue::Kind;

// Of expressions and statements in each other, through calls of macros too. Each takes some hundred bytes of stack,
// with sanitizers a few thousand.
constexpr int kMaxLevels = 600;

}  // namespace

TemplateExpressionEvaluator::Deeper::Deeper(TemplateExpressionEvaluator& evaluator) : evaluator_(evaluator) {
  if (++evaluator_.levels_ <= kMaxLevels && stack_has_room()) return;
  const int levels = --evaluator_.levels_;
  evaluator_.context_.fail(
      fmt::format("the template nests deeper than {} levels: a macro may call itself", std::min(levels, kMaxLevels)));
}

TemplateValue TemplateExpressionEvaluator::look_up(const std::string& name) {
  TemplateValue found;
  int64_t scopes = 0;
  const Scope* scope = scope_.get();
  for (; scope; scope = scope->parent.get(), ++scopes) {
    const auto entry = scope->variables.find(name);
    if (entry == scope->variables.end()) continue;
    found = entry->second;
    break;
  }
  context_.charge(scopes / 4);
  return scope ? found : TemplateValue::undefined(name);
}

TemplateValue TemplateExpressionEvaluator::evaluate(const Expression& e) {
  const Deeper deeper(*this);
  context_.at_line(e.line);
  context_.charge(1);
  switch (e.kind) {
    case Expression::Kind::constant: return e.constant;
    case Expression::Kind::name: return look_up(e.name);
    case Expression::Kind::list: return TemplateValue::list(parts(e, 0));
    case Expression::Kind::tuple: return TemplateValue::tuple(parts(e, 0));
    case Expression::Kind::dict: return dict(e);
    case Expression::Kind::attribute: return template_attribute(context_, evaluate(*e.parts[0]), e.name);
    case Expression::Kind::subscript: return subscript(e);
    case Expression::Kind::slice: return slice(e);
    case Expression::Kind::call: return call(e, nullptr);
    case Expression::Kind::filter: return filter(e);
    case Expression::Kind::test: return test(e);
    case Expression::Kind::unary:
      if (e.name == "not") return !evaluate(*e.parts[0]).truth();
      return template_unary(context_, e.name, evaluate(*e.parts[0]));
    case Expression::Kind::binary: return binary(e);
    case Expression::Kind::compare: return compare(e);
    case Expression::Kind::join: return join(e);
    case Expression::Kind::condition:
      if (evaluate(*e.parts[0]).truth()) return evaluate(*e.parts[1]);
      return e.parts[2] ? evaluate(*e.parts[2]) : TemplateValue::missing("the other side of a condition");
  }
  return {};
}

TemplateValue TemplateExpressionEvaluator::dict(const Expression& e) {
  TemplateValue::Members members;
  for (size_t i = 0; i < e.parts.size(); i += 2) {
    TemplateValue key = evaluate(*e.parts[i]);
    context_.charge_walk(key);
    members.emplace_back(std::move(key), evaluate(*e.parts[i + 1]));
  }
  return TemplateValue::dict(std::move(members));
}

TemplateValue TemplateExpressionEvaluator::subscript(const Expression& e) {
  const TemplateValue object = evaluate(*e.parts[0]);
  return template_subscript(context_, object, evaluate(*e.parts[1]));
}

TemplateValue TemplateExpressionEvaluator::filter(const Expression& e) {
  const TemplateValue value = evaluate(*e.parts[0]);
  return template_filter(e.name, value, arguments(e, "the filter", e.name, nullptr));
}

TemplateValue TemplateExpressionEvaluator::test(const Expression& e) {
  const TemplateValue value = evaluate(*e.parts[0]);
  return template_test(e.name, value, arguments(e, "the test", e.name, nullptr));
}

TemplateValue TemplateExpressionEvaluator::binary(const Expression& e) {
  TemplateValue left = evaluate(*e.parts[0]);
  if (e.name == "and") return left.truth() ? evaluate(*e.parts[1]) : left;
  if (e.name == "or") return left.truth() ? left : evaluate(*e.parts[1]);
  return template_binary(context_, e.name, left, evaluate(*e.parts[1]));
}

TemplateValue TemplateExpressionEvaluator::compare(const Expression& e) {
  TemplateValue left = evaluate(*e.parts[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    TemplateValue right = evaluate(*e.parts[i + 1]);
    if (!template_compare(context_, e.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

TemplateValue TemplateExpressionEvaluator::join(const Expression& e) {
  Out text;
  for (const auto& part : e.parts) print(text, evaluate(*part));
  return text.take();
}

TemplateValue TemplateExpressionEvaluator::slice(const Expression& e) {
  const TemplateValue object = evaluate(*e.parts[0]);
  TemplateValue bounds[3];
  for (size_t i = 0; i < 3; ++i)
    if (e.parts[i + 1]) bounds[i] = evaluate(*e.parts[i + 1]);
  auto bound = [&](size_t i) { return e.parts[i + 1] ? &bounds[i] : nullptr; };
  return template_slice_of(context_, object, bound(0), bound(1), bound(2));
}

std::vector<TemplateValue> TemplateExpressionEvaluator::parts(const Expression& e, size_t first) {
  std::vector<TemplateValue> values;
  for (size_t i = first; i < e.parts.size(); ++i) values.push_back(evaluate(*e.parts[i]));
  return values;
}

TemplateCall TemplateExpressionEvaluator::arguments(const Expression& e, const char* role, const std::string& name,
                                                    const TemplateValue* caller) {
  std::vector<TemplateValue> positional = parts(e, 1);
  TemplateCall::Named named;
  std::set<std::string> names;
  auto add = [&](const std::string& key, TemplateValue value) {
    if (!names.insert(key).second) context_.fail(fmt::format("the argument \"{}\" is given twice", key));
    named.emplace_back(key, std::move(value));
  };
  for (const auto& [key, expression] : e.keywords) {
    TemplateValue value = evaluate(*expression);
    if (key == "*") {
      for (TemplateValue& element : template_elements(context_, value)) positional.push_back(std::move(element));
    } else if (key == "**") {
      if (!value.is(Kind::dict))
        context_.fail(fmt::format("{} is given as \"**\", want a dictionary", value.describe()));
      context_.charge_walk(value);
      for (const auto& [member_key, member] : value.dict().members) {
        if (!member_key.is(Kind::string))
          context_.fail(fmt::format("{} is given as the name of an argument, want a string", member_key.describe()));
        add(member_key.string().text, member);
      }
    } else {
      add(key, std::move(value));
    }
  }
  if (caller) add("caller", *caller);
  context_.at_line(e.line);
  return TemplateCall(context_, role, name, std::move(positional), std::move(named));
}

TemplateValue TemplateExpressionEvaluator::call(const Expression& e, const TemplateValue* caller) {
  const TemplateValue callee = evaluate(*e.parts[0]);
  const TemplateCall what = arguments(e, "", e.parts[0]->name, caller);
  if (!callee.is(Kind::object) || !callee.object().is_callable())
    context_.fail(fmt::format("{} is called", callee.describe()));
  return callee.shared_object()->call(what);
}

}  // namespace megalith
