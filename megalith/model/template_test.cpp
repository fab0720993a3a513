// The tests of chat templates: what may stand behind "is".
#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

using Test = bool (*)(const TemplateValue& value, const TemplateCall& call);

template <Kind kind>
bool is_kind(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return value.is(kind);
}

// "==", "lt" and the like.
template <const char* const& op>
bool compares(const TemplateValue& value, const TemplateCall& call) {
  call.check(1);
  return template_compare(call.context(), op, value, call.at(0));
}
constexpr const char* kEqual = "==";
constexpr const char* kUnequal = "!=";
constexpr const char* kLess = "<";
constexpr const char* kLessEqual = "<=";
constexpr const char* kGreater = ">";
constexpr const char* kGreaterEqual = ">=";

bool in(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"seq"});
  return template_compare(call.context(), "in", value, call.at(0, "seq"));
}

// value % divisor == rest
bool leaves(const TemplateValue& value, const TemplateCall& call, const TemplateValue& divisor, int rest) {
  return template_binary(call.context(), "%", value, divisor) == TemplateValue(rest);
}

template <int rest>
bool leaves_of_two(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return leaves(value, call, 2, rest);
}

bool divisible_by(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"num"});
  return leaves(value, call, call.at(0, "num"), 0);
}

bool is_callable(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return value.is(Kind::undefined) || (value.is(Kind::object) && value.object().is_callable());
}

bool is_iterable(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (value.is(Kind::object)) return value.object().iterate() != nullptr;
  return template_length_of(value).has_value();
}

bool is_sequence(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (value.is(Kind::object)) return template_range_slice(value, 0, 0, 1).has_value();
  return template_length_of(value).has_value();
}

template <bool wanted>
bool is_bool(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return value.is(Kind::boolean) && value.truth() == wanted;
}

// str(value).name()
bool asks(const TemplateValue& value, const TemplateCall& call, const char* name) {
  call.check(0);
  const TemplateTextOf text(call.context(), value);
  const TemplateValue plain = MarkedText{std::string(text.text())};
  return template_own_attribute(call.context(), plain, name)
      ->object()
      .call(TemplateCall(call.context(), "the method", name))
      .truth();
}

template <bool (*has)(std::string_view)>
bool exists(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (!value.is_hashable()) call.fail(fmt::format("got {}, want a name", value.describe()));
  return value.is(Kind::string) && has(value.text());
}

struct Row {
  std::string_view name;
  Test test;
};
constexpr Row kTests[] = {
    {"!=", compares<kUnequal>},
    {"<", compares<kLess>},
    {"<=", compares<kLessEqual>},
    {"==", compares<kEqual>},
    {">", compares<kGreater>},
    {">=", compares<kGreaterEqual>},
    {"boolean", is_kind<Kind::boolean>},
    {"callable", is_callable},
    {"defined",
     [](const TemplateValue& value, const TemplateCall& call) { return !is_kind<Kind::undefined>(value, call); }},
    {"divisibleby", divisible_by},
    {"eq", compares<kEqual>},
    {"equalto", compares<kEqual>},
    {"escaped",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(0);
       return value.is_markup();
     }},
    {"even", leaves_of_two<0>},
    {"false", is_bool<false>},
    {"filter", exists<template_has_filter>},
    {"float", is_kind<Kind::number>},
    {"ge", compares<kGreaterEqual>},
    {"greaterthan", compares<kGreater>},
    {"gt", compares<kGreater>},
    {"in", in},
    {"integer", is_kind<Kind::integer>},
    {"iterable", is_iterable},
    {"le", compares<kLessEqual>},
    {"lessthan", compares<kLess>},
    {"lower", [](const TemplateValue& value, const TemplateCall& call) { return asks(value, call, "islower"); }},
    {"lt", compares<kLess>},
    {"mapping", is_kind<Kind::dict>},
    {"ne", compares<kUnequal>},
    {"none", is_kind<Kind::none>},
    {"number",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(0);
       return value.is_number();
     }},
    {"odd", leaves_of_two<1>},
    {"sameas",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(1, {"other"});
       call.context().charge(std::min(value.weight(), call.at(0, "other").weight()));
       return value.is_same(call.at(0, "other"));
     }},
    {"sequence", is_sequence},
    {"string", is_kind<Kind::string>},
    {"test", exists<template_has_test>},
    {"true", is_bool<true>},
    {"undefined", is_kind<Kind::undefined>},
    {"upper", [](const TemplateValue& value, const TemplateCall& call) { return asks(value, call, "isupper"); }},
};

const Row* find_test(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTests), std::end(kTests), [&](const Row& r) { return r.name == name; });
  return row == std::end(kTests) ? nullptr : row;
}

}  // namespace

bool template_has_test(std::string_view name) { return find_test(name); }

std::string template_no_test(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Row& row : kTests)
    if (std::isalpha(static_cast<unsigned char>(row.name[0]))) known.push_back(row.name);
  return fmt::format("found the test \"{}\", supported are {}", name, fmt::join(known, ", "));
}

bool template_test(const std::string& name, const TemplateValue& value, const TemplateCall& call) {
  call.context().charge(1);
  if (const Row* row = find_test(name)) return row->test(value, call);
  call.context().fail(template_no_test(name));
}

}  // namespace megalith
