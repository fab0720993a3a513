// Methods of Python's strings, lists and dictionaries that chat templates call, and the functions that they find.
#include <utf8proc.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_text.h"
#include "megalith/model/utf8.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

using Method = TemplateValue (*)(const TemplateValue& object, const TemplateCall& call);

template <bool left, bool right>
TemplateValue strip(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const TemplateValue* chars = call.find(0);
  if (!chars || chars->is(Kind::none)) return template_strip(object.string(), std::nullopt, left, right);
  return template_strip(object.string(), call.string(0).text, left, right);
}

template <bool from_right>
TemplateValue split(const TemplateValue& object, const TemplateCall& call) {
  call.check(2, {"sep", "maxsplit"});
  const TemplateValue* separator = call.find(0, "sep");
  std::optional<std::string_view> at;
  if (separator && !separator->is(Kind::none)) {
    at = call.string(0, "sep").text;
    if (at->empty()) call.fail("got an empty separator");
  }
  std::vector<TemplateValue> parts;
  for (MarkedText& part : template_split(object.string(), at, call.integer(1, "maxsplit", -1), from_right))
    parts.emplace_back(std::move(part));
  call.context().charge(std::ssize(parts));
  return TemplateValue::list(std::move(parts));
}

// startswith and endswith, with one string or a tuple of them.
template <bool at_start>
TemplateValue starts_or_ends(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  auto matches = [&](const TemplateValue& part) {
    if (!part.is(Kind::string)) call.fail(fmt::format("got {}, want a string", part.describe()));
    return at_start ? object.text().starts_with(part.text()) : object.text().ends_with(part.text());
  };
  const TemplateValue& what = call.at(0);
  if (!what.is(Kind::list)) return matches(what);
  return std::any_of(what.list().elements.begin(), what.list().elements.end(), matches);
}

template <TemplateCase how>
TemplateValue in_case(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  return template_case(object.string(), how);
}

TemplateValue replace(const TemplateValue& object, const TemplateCall& call) {
  call.check(3, {"old", "new", "count"});
  const MarkedText &text = object.string(), &from = call.string(0, "old"), &to = call.string(1, "new");
  if (to.text.size() > std::max<size_t>(from.text.size(), 1))
    call.context().charge_text(text.text.size() / std::max<size_t>(from.text.size(), 1) * to.text.size());
  return template_replace(text, from.text, to, call.integer(2, "count", -1));
}

// In characters; -1 if it is not there.
template <bool last>
TemplateValue find(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const std::string_view text = object.text(), what = call.string(0).text;
  const size_t at = last ? text.rfind(what) : text.find(what);
  return at == text.npos ? int64_t{-1} : template_length(text.substr(0, at));
}

TemplateValue count(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  if (object.is(Kind::list)) {
    const auto& all = object.list().elements;
    call.context().charge(object.weight());
    return static_cast<int64_t>(std::count(all.begin(), all.end(), call.at(0)));
  }
  const MarkedText& what = call.string(0);
  if (what.text.empty()) return template_length(object.text()) + 1;
  return std::ssize(template_split(object.string(), what.text, -1, false)) - 1;
}

TemplateValue join(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  MarkedText result;
  bool is_first = true;
  for (const TemplateValue& element : template_elements(call.context(), call.at(0))) {
    if (!element.is(Kind::string)) call.fail(fmt::format("got {} in the list, want strings", element.describe()));
    if (!std::exchange(is_first, false)) result.append(object.string().view());
    result.append(element.string().view());
    call.context().check_length(result.text.size());
  }
  call.context().charge_text(result.text.size());
  return result;
}

TemplateValue partition(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const MarkedText& separator = call.string(0);
  if (separator.text.empty()) call.fail("got an empty separator");
  std::vector<MarkedText> parts = template_split(object.string(), separator.text, 1, false);
  if (parts.size() < 2) return TemplateValue::list({object, "", ""}, true);
  return TemplateValue::list({std::move(parts[0]), separator, std::move(parts[1])}, true);
}

template <bool prefix>
TemplateValue remove(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const std::string_view text = object.text(), part = call.string(0).text;
  if (!(prefix ? text.starts_with(part) : text.ends_with(part))) return object;
  MarkedText result;
  result.append(prefix ? object.string().view().part(part.size(), text.size())
                       : object.string().view().part(0, text.size() - part.size()));
  return result;
}

// Whether there are characters, and all are of these categories.
bool all_of_category(const TemplateValue& object, const TemplateCall& call, std::string_view first_letters) {
  call.check(0);
  std::string_view rest = object.text();
  if (rest.empty()) return false;
  for (; !rest.empty(); rest.remove_prefix(static_cast<size_t>(utf8_next(rest)))) {
    const std::string category = utf8proc_category_string(static_cast<utf8proc_int32_t>(utf8_code_point(rest)));
    if (first_letters.find(category[0]) == std::string_view::npos) return false;
  }
  return true;
}

TemplateValue dict_pairs(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  std::vector<TemplateValue> pairs;
  for (const auto& [key, value] : object.dict().members) pairs.push_back(TemplateValue::list({key, value}, true));
  call.context().charge(std::ssize(pairs));
  return TemplateValue::list(std::move(pairs));
}

TemplateValue dict_get(const TemplateValue& object, const TemplateCall& call) {
  call.check(2, {"key", "default"});
  if (const TemplateValue* value = object.dict().find(call.at(0, "key"))) return *value;
  const TemplateValue* absent = call.find(1, "default");
  return absent ? *absent : TemplateValue::none();
}

// loop.cycle; the variable "loop" is a dictionary with "index0".
TemplateValue cycle(const TemplateValue& object, const TemplateCall& call) {
  const TemplateValue* index = object.dict().find("index0");
  if (!index) call.fail("is asked of a dictionary, only \"loop\" has it");
  if (call.positional().empty()) call.fail("got nothing to choose from");
  return call.positional()[static_cast<size_t>(index->integer()) % call.positional().size()];
}

struct Row {
  Kind kind;
  std::string_view name;
  Method method;  // null: Python has it, but in templates it is not allowed or not supported
};
constexpr Row kMethods[] = {
    {Kind::string, "strip", strip<true, true>},
    {Kind::string, "lstrip", strip<true, false>},
    {Kind::string, "rstrip", strip<false, true>},
    {Kind::string, "split", split<false>},
    {Kind::string, "rsplit", split<true>},
    {Kind::string, "splitlines",
     [](const TemplateValue& object, const TemplateCall& call) {
       call.check(1, {"keepends"});
       std::vector<TemplateValue> lines;
       for (MarkedText& line : template_splitlines(object.string(), call.flag(0, "keepends", false)))
         lines.emplace_back(std::move(line));
       call.context().charge(std::ssize(lines));
       return TemplateValue::list(std::move(lines));
     }},
    {Kind::string, "startswith", starts_or_ends<true>},
    {Kind::string, "endswith", starts_or_ends<false>},
    {Kind::string, "upper", in_case<TemplateCase::upper>},
    {Kind::string, "lower", in_case<TemplateCase::lower>},
    {Kind::string, "title", in_case<TemplateCase::title>},
    {Kind::string, "capitalize", in_case<TemplateCase::capitalize>},
    {Kind::string, "replace", replace},
    {Kind::string, "find", find<false>},
    {Kind::string, "rfind", find<true>},
    {Kind::string, "count", count},
    {Kind::string, "join", join},
    {Kind::string, "partition", partition},
    {Kind::string, "removeprefix", remove<true>},
    {Kind::string, "removesuffix", remove<false>},
    {Kind::string, "isalpha",
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       return all_of_category(object, call, "L");
     }},
    {Kind::string, "isalnum",
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       return all_of_category(object, call, "LN");
     }},
    {Kind::string, "isdigit",
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return !object.text().empty() && object.text().find_first_not_of("0123456789") == std::string_view::npos;
     }},
    {Kind::string, "isspace",
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return !object.text().empty() && template_strip(object.string(), std::nullopt, true, true).text.empty();
     }},
    {Kind::string, "format", nullptr},
    {Kind::string, "encode", nullptr},
    {Kind::string, "index", nullptr},
    {Kind::string, "zfill", nullptr},
    {Kind::list, "count", count},
    {Kind::list, "append", nullptr},
    {Kind::list, "extend", nullptr},
    {Kind::list, "insert", nullptr},
    {Kind::list, "index", nullptr},
    {Kind::list, "pop", nullptr},
    {Kind::list, "remove", nullptr},
    {Kind::list, "reverse", nullptr},
    {Kind::list, "sort", nullptr},
    {Kind::dict, "items", dict_pairs},
    {Kind::dict, "keys",
     [](const TemplateValue& object, const TemplateCall& call) {
       call.check(0);
       return TemplateValue::list(template_elements(call.context(), object));
     }},
    {Kind::dict, "values",
     [](const TemplateValue& object, const TemplateCall& call) {
       call.check(0);
       std::vector<TemplateValue> values;
       for (const auto& [key, value] : object.dict().members) values.push_back(value);
       call.context().charge(std::ssize(values));
       return TemplateValue::list(std::move(values));
     }},
    {Kind::dict, "get", dict_get},
    {Kind::dict, "copy",
     [](const TemplateValue& object, const TemplateCall& call) {
       call.check(0);
       return object;
     }},
    {Kind::dict, "clear", nullptr},
    {Kind::dict, "pop", nullptr},
    {Kind::dict, "popitem", nullptr},
    {Kind::dict, "setdefault", nullptr},
    {Kind::dict, "update", nullptr},
};

const Row* find_method(const TemplateValue& object, std::string_view name) {
  for (const Row& row : kMethods)
    if (row.kind == object.kind() && row.name == name) return &row;
  return nullptr;
}

}  // namespace

bool template_has_method(const TemplateValue& object, std::string_view name) {
  if (object.is(Kind::dict) && name == "cycle") return object.dict().find("revindex0");
  return find_method(object, name);
}

TemplateValue template_method(const std::string& name, const TemplateValue& object, const TemplateCall& call) {
  if (object.is(Kind::string)) call.context().charge_text(object.text().size());
  if (object.is(Kind::dict) && name == "cycle") return cycle(object, call);
  const Row* row = find_method(object, name);
  if (row && row->method) return row->method(object, call);
  std::vector<std::string_view> known;
  for (const Row& other : kMethods)
    if (other.kind == object.kind() && other.method) known.push_back(other.name);
  call.context().fail(
      fmt::format("found the method \"{}\" of {}, supported are {}", name, object.kind_name(), fmt::join(known, ", ")));
}

}  // namespace megalith
