// The tests of chat templates: what may stand behind "is".
#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

using Test = bool (*)(const TemplateValue& value, const TemplateCall& call);

template <Kind kind>
bool is_kind(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return value.is(kind);
}

int64_t whole(const TemplateValue& value, const TemplateCall& call) {
  if (!value.is_integer()) call.fail(fmt::format("got {}, want an integer", value.describe()));
  return value.integer();
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
constexpr const char* kIn = "in";

bool is_iterable(const TemplateValue& value) {
  return value.is(Kind::string) || value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::undefined);
}

// str.islower and str.isupper: there are letters with case, and all are of this one.
template <TemplateCase how>
bool in_case(const TemplateValue& value, const TemplateCall& call) {
  const MarkedText text = value.to_text();
  call.context().charge_text(text.text.size());
  const auto other = how == TemplateCase::lower ? TemplateCase::upper : TemplateCase::lower;
  return template_case(text, how).text == text.text && template_case(text, other).text != text.text;
}

struct Row {
  std::string_view name;
  Test test;
};
constexpr Row kTests[] = {
    {"boolean", is_kind<Kind::boolean>},
    {"callable",
     [](const TemplateValue& value, const TemplateCall&) {
       return value.is(Kind::macro) || value.is(Kind::function) || value.is(Kind::method);
     }},
    {"defined", [](const TemplateValue& value, const TemplateCall&) { return !value.is(Kind::undefined); }},
    {"divisibleby",
     [](const TemplateValue& value, const TemplateCall& call) {
       return template_binary(call.context(), "%", value, call.at(0)) == TemplateValue(0);
     }},
    {"eq", compares<kEqual>},
    {"equalto", compares<kEqual>},
    {"==", compares<kEqual>},
    {"even", [](const TemplateValue& value, const TemplateCall& call) { return whole(value, call) % 2 == 0; }},
    {"false",
     [](const TemplateValue& value, const TemplateCall&) { return value.is(Kind::boolean) && !value.truth(); }},
    {"filter", [](const TemplateValue& value,
                  const TemplateCall&) { return value.is(Kind::string) && template_has_filter(value.text()); }},
    {"float", is_kind<Kind::number>},
    {"ge", compares<kGreaterEqual>},
    {">=", compares<kGreaterEqual>},
    {"greaterthan", compares<kGreater>},
    {"gt", compares<kGreater>},
    {">", compares<kGreater>},
    {"in", compares<kIn>},
    {"integer", is_kind<Kind::integer>},
    {"iterable", [](const TemplateValue& value, const TemplateCall&) { return is_iterable(value); }},
    {"le", compares<kLessEqual>},
    {"<=", compares<kLessEqual>},
    {"lessthan", compares<kLess>},
    {"lower", in_case<TemplateCase::lower>},
    {"lt", compares<kLess>},
    {"<", compares<kLess>},
    {"mapping", is_kind<Kind::dict>},
    {"ne", compares<kUnequal>},
    {"!=", compares<kUnequal>},
    {"none", is_kind<Kind::none>},
    {"number", [](const TemplateValue& value, const TemplateCall&) { return value.is_number(); }},
    {"odd", [](const TemplateValue& value, const TemplateCall& call) { return whole(value, call) % 2 != 0; }},
    {"sameas", [](const TemplateValue& value,
                  const TemplateCall& call) { return value.kind() == call.at(0).kind() && value == call.at(0); }},
    {"sequence",
     [](const TemplateValue& value, const TemplateCall&) {
       return is_iterable(value) && !(value.is(Kind::list) && value.list().is_generator);
     }},
    {"string", is_kind<Kind::string>},
    {"test", [](const TemplateValue& value,
                const TemplateCall&) { return value.is(Kind::string) && template_has_test(value.text()); }},
    {"true", [](const TemplateValue& value, const TemplateCall&) { return value.is(Kind::boolean) && value.truth(); }},
    {"undefined", is_kind<Kind::undefined>},
    {"upper", in_case<TemplateCase::upper>},
};

}  // namespace

bool template_has_test(std::string_view name) {
  return std::any_of(std::begin(kTests), std::end(kTests), [&](const Row& row) { return row.name == name; });
}

bool template_test(const std::string& name, const TemplateValue& value, const TemplateCall& call) {
  call.context().charge(1);
  std::vector<std::string_view> known;
  for (const Row& row : kTests) {
    if (row.name == name) return row.test(value, call);
    known.push_back(row.name);
  }
  call.context().fail(fmt::format("found the test \"{}\", supported are {}", name, fmt::join(known, ", ")));
}

}  // namespace megalith
