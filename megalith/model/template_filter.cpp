// The filters of chat templates: those of Jinja that published templates use, and transformers' tojson. What Jinja
// makes a generator of (map, select, reverse) is one here.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

using Filter = TemplateValue (*)(const TemplateValue& value, const TemplateCall& call);

MarkedText text_of(const TemplateValue& value, const TemplateCall& call) {
  MarkedText text = value.to_text();
  call.context().charge_text(text.text.size());
  return text;
}

// value.a.b or value.0, as map, sort and the like name attributes.
TemplateValue attribute_path(const TemplateCall& call, TemplateValue value, const TemplateValue& path) {
  if (path.is_integer()) return template_subscript(call.context(), value, path);
  if (!path.is(Kind::string)) call.fail(fmt::format("got {} as an attribute, want a string", path.describe()));
  for (const MarkedText& name : template_split(path.string(), ".", -1, false)) {
    const bool number =
        !name.text.empty() && name.text.size() < 10 && name.text.find_first_not_of("0123456789") == std::string::npos;
    value = number ? template_subscript(call.context(), value, int64_t{std::stoi(name.text)})
                   : template_subscript(call.context(), value, name.text);
  }
  return value;
}

TemplateValue generator(std::vector<TemplateValue> elements) {
  return TemplateValue::list(std::move(elements), false, true);
}

// What sorting and comparing without regard to case looks at.
TemplateValue sort_key(const TemplateCall& call, const TemplateValue& value, bool case_sensitive,
                       const TemplateValue* attribute) {
  TemplateValue key = attribute && !attribute->is(Kind::none) ? attribute_path(call, value, *attribute) : value;
  if (!case_sensitive && key.is(Kind::string)) return template_case(key.string(), TemplateCase::lower);
  return key;
}

std::vector<TemplateValue> sorted(const TemplateCall& call, const std::vector<TemplateValue>& elements,
                                  bool case_sensitive, bool reverse, const TemplateValue* attribute) {
  std::vector<std::pair<TemplateValue, TemplateValue>> keyed;
  for (const TemplateValue& element : elements)
    keyed.emplace_back(sort_key(call, element, case_sensitive, attribute), element);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    call.context().charge(1 + std::min(a.first.weight(), b.first.weight()));
    return reverse ? b.first.less(a.first) : a.first.less(b.first);
  });
  std::vector<TemplateValue> result;
  for (auto& [key, element] : keyed) result.push_back(std::move(element));
  return result;
}

TemplateValue extreme(const TemplateValue& value, const TemplateCall& call, bool largest) {
  call.check(2, {"case_sensitive", "attribute"});
  const std::vector<TemplateValue> all = template_elements(call.context(), value);
  if (all.empty()) return TemplateValue::undefined("an element of an empty list");
  auto key = [&](const TemplateValue& element) {
    return sort_key(call, element, call.flag(0, "case_sensitive", false), call.find(1, "attribute"));
  };
  size_t best = 0;
  for (size_t i = 1; i < all.size(); ++i)
    if (largest ? key(all[best]).less(key(all[i])) : key(all[i]).less(key(all[best]))) best = i;
  return all[best];
}

// select, reject, selectattr and rejectattr.
TemplateValue selected(const TemplateValue& value, const TemplateCall& call, bool keep, bool by_attribute) {
  size_t first = by_attribute ? 1 : 0;
  const TemplateValue* attribute = by_attribute ? &call.at(0) : nullptr;
  std::string test;
  if (call.positional().size() > first) test = call.string(first++).text;
  const std::vector<TemplateValue> arguments(
      call.positional().begin() + static_cast<std::ptrdiff_t>(std::min(first, call.positional().size())),
      call.positional().end());
  std::vector<TemplateValue> result;
  for (const TemplateValue& element : template_elements(call.context(), value)) {
    const TemplateValue looked_at = attribute ? attribute_path(call, element, *attribute) : element;
    const bool passes =
        test.empty() ? looked_at.truth()
                     : template_test(test, looked_at,
                                     TemplateCall(call.context(), fmt::format("the test \"{}\"", test), arguments));
    if (passes == keep) result.push_back(element);
  }
  return generator(std::move(result));
}

TemplateValue map(const TemplateValue& value, const TemplateCall& call) {
  std::vector<TemplateValue> result;
  const TemplateValue* attribute = call.positional().empty() ? call.find(0, "attribute") : nullptr;
  if (attribute) {
    call.check(0, {"attribute", "default"});
    const TemplateValue* absent = call.find(1, "default");
    for (const TemplateValue& element : template_elements(call.context(), value)) {
      TemplateValue member = attribute_path(call, element, *attribute);
      result.push_back(member.is(Kind::undefined) && absent ? *absent : std::move(member));
    }
    return generator(std::move(result));
  }
  const std::string& name = call.string(0).text;
  const TemplateCall inner(call.context(), fmt::format("the filter \"{}\"", name),
                           {call.positional().begin() + 1, call.positional().end()}, call.named());
  for (const TemplateValue& element : template_elements(call.context(), value))
    result.push_back(template_filter(name, element, inner));
  return generator(std::move(result));
}

TemplateValue length(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return template_length(value.text());
    case Kind::dict: return std::ssize(value.dict().members);
    case Kind::list:
      if (!value.list().is_generator) return std::ssize(value.list().elements);
      [[fallthrough]];
    default: call.fail(fmt::format("got {}, which has no length", value.describe()));
  }
}

TemplateValue first(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const std::vector<TemplateValue> all = template_elements(call.context(), value);
  return all.empty() ? TemplateValue::undefined("the first of nothing") : all.front();
}

TemplateValue last(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const std::vector<TemplateValue> all = template_elements(call.context(), value);
  return all.empty() ? TemplateValue::undefined("the last of nothing") : all.back();
}

TemplateValue default_(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"default_value", "boolean"});
  const bool replace = value.is(Kind::undefined) || (call.flag(1, "boolean", false) && !value.truth());
  if (!replace) return value;
  const TemplateValue* instead = call.find(0, "default_value");
  return instead ? *instead : TemplateValue("");
}

TemplateValue join(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"d", "attribute"});
  const TemplateValue* separator = call.find(0, "d");
  const TemplateValue* attribute = call.find(1, "attribute");
  const MarkedText between = separator ? separator->to_text() : MarkedText{};
  MarkedText result;
  bool is_first = true;
  for (const TemplateValue& element : template_elements(call.context(), value)) {
    if (!std::exchange(is_first, false)) result.append(between.view());
    result.append((attribute ? attribute_path(call, element, *attribute) : element).to_text().view());
    call.context().check_length(result.text.size());
  }
  call.context().charge_text(result.text.size());
  return result;
}

TemplateValue replace(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"old", "new", "count"});
  const MarkedText text = text_of(value, call), to = call.at(1, "new").to_text();
  const std::string from = call.at(0, "old").to_text().text;
  const TemplateValue* count = call.find(2, "count");
  const int64_t most = count && !count->is(Kind::none) ? call.integer(2, "count", -1) : -1;
  if (to.text.size() > std::max<size_t>(from.size(), 1))
    call.context().charge_text(text.text.size() / std::max<size_t>(from.size(), 1) * to.text.size());
  return template_replace(text, from, to, most);
}

TemplateValue indent(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"width", "first", "blank"});
  const TemplateValue* width = call.find(0, "width");
  MarkedText margin;
  if (width && width->is(Kind::string)) {
    margin = width->string();
  } else {
    const int64_t count = call.integer(0, "width", 4);
    if (count < 0 || count > 10000) call.fail(fmt::format("got the width {}, want 0 to 10000", count));
    margin.text.assign(static_cast<size_t>(count), ' ');
  }
  MarkedText text = text_of(value, call);
  text.append({"\n"});
  const bool blank = call.flag(2, "blank", false);
  MarkedText result;
  const std::vector<MarkedText> lines = template_splitlines(text, false);
  call.context().charge_text(text.text.size() + lines.size() * margin.text.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i) result.append({"\n"});
    if (i ? blank || !lines[i].text.empty() : call.flag(1, "first", false)) result.append(margin.view());
    result.append(lines[i].view());
  }
  return result;
}

TemplateValue tojson(const TemplateValue& value, const TemplateCall& call) {
  call.check(4, {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (call.flag(0, "ensure_ascii", false)) call.fail("got ensure_ascii, which is not supported");
  const TemplateValue* width = call.find(1, "indent");
  const bool lines = width && !width->is(Kind::none);
  const int64_t indent_width = lines ? call.integer(1, "indent", 0) : -1;
  if (indent_width > 100) call.fail(fmt::format("got the indent {}, want at most 100", indent_width));
  std::string item = lines ? "," : ", ", key = ": ";
  if (const TemplateValue* separators = call.find(2, "separators"); separators && !separators->is(Kind::none)) {
    const std::vector<TemplateValue> both = template_elements(call.context(), *separators);
    if (both.size() != 2) call.fail(fmt::format("got {} separators, want two", both.size()));
    item = both[0].to_text().text;
    key = both[1].to_text().text;
  }
  MarkedText text =
      template_to_json(value, static_cast<int>(indent_width), call.flag(3, "sort_keys", false), item, key);
  call.context().charge_text(text.text.size());
  return text;
}

TemplateValue int_(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"default", "base"});
  const int64_t absent = call.integer(0, "default", 0);
  if (value.is_integer()) return value.integer();
  if (value.is(Kind::number)) return std::abs(value.number()) < 9e18 ? static_cast<int64_t>(value.number()) : absent;
  if (!value.is(Kind::string)) return absent;
  const int64_t base = call.integer(1, "base", 10);
  if (base < 2 || base > 36) call.fail(fmt::format("got the base {}, want 2 to 36", base));
  std::string text = template_strip(value.string(), std::nullopt, true, true).text;
  if (text.starts_with('+')) text.erase(0, 1);
  int64_t result = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result, static_cast<int>(base));
  if (error == std::errc() && end == text.data() + text.size()) return result;
  double number = 0;
  const auto [number_end, number_error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = number_error == std::errc() && number_end == text.data() + text.size() && std::abs(number) < 9e18;
  return whole ? static_cast<int64_t>(number) : absent;
}

TemplateValue float_(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"default"});
  if (value.is_number()) return value.number();
  const TemplateValue* absent = call.find(0, "default");
  if (value.is(Kind::string)) {
    const std::string text = template_strip(value.string(), std::nullopt, true, true).text;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  return absent ? *absent : TemplateValue(0.0);
}

TemplateValue round_(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"precision", "method"});
  if (!value.is_number()) call.fail(fmt::format("got {}, want a number", value.describe()));
  const int64_t precision = call.integer(0, "precision", 0);
  const std::string method = call.find(1, "method") ? call.string(1, "method").text : "common";
  if (std::abs(precision) > 300) call.fail(fmt::format("got the precision {}, want -300 to 300", precision));
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = value.number() * scale;
  if (method == "floor") return std::floor(scaled) / scale;
  if (method == "ceil") return std::ceil(scaled) / scale;
  if (method != "common") call.fail(fmt::format("got the method \"{}\", want common, ceil or floor", method));
  if (value.is_integer() && precision >= 0) return value;
  // Python rounds what the number is written as, half to even.
  if (precision >= 0 && precision <= 20) return std::stod(fmt::format("{:.{}f}", value.number(), precision));
  return std::nearbyint(scaled) / scale;
}

TemplateValue sum(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"attribute", "start"});
  const TemplateValue* attribute = call.find(0, "attribute");
  const TemplateValue* start = call.find(1, "start");
  TemplateValue total = start ? *start : TemplateValue(0);
  for (const TemplateValue& element : template_elements(call.context(), value))
    total =
        template_binary(call.context(), "+", total,
                        attribute && !attribute->is(Kind::none) ? attribute_path(call, element, *attribute) : element);
  return total;
}

TemplateValue items(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (value.is(Kind::undefined)) return generator({});
  if (!value.is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", value.describe()));
  std::vector<TemplateValue> result;
  for (const auto& [key, member] : value.dict().members) result.push_back(TemplateValue::list({key, member}, true));
  call.context().charge(std::ssize(result));
  return generator(std::move(result));
}

TemplateValue dictsort(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"case_sensitive", "by", "reverse"});
  if (!value.is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", value.describe()));
  const std::string by = call.find(1, "by") ? call.string(1, "by").text : "key";
  if (by != "key" && by != "value") call.fail(fmt::format("got by=\"{}\", want \"key\" or \"value\"", by));
  std::vector<TemplateValue> pairs;
  for (const auto& [key, member] : value.dict().members) pairs.push_back(TemplateValue::list({key, member}, true));
  const TemplateValue place(by == "key" ? 0 : 1);
  return TemplateValue::list(
      sorted(call, pairs, call.flag(0, "case_sensitive", false), call.flag(2, "reverse", false), &place));
}

TemplateValue reverse(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  std::vector<TemplateValue> all = template_elements(call.context(), value);
  std::reverse(all.begin(), all.end());
  if (!value.is(Kind::string)) return generator(std::move(all));
  MarkedText text;
  for (const TemplateValue& character : all) text.append(character.string().view());
  return text;
}

TemplateValue unique(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"case_sensitive", "attribute"});
  std::vector<TemplateValue> seen, result;
  for (const TemplateValue& element : template_elements(call.context(), value)) {
    TemplateValue key = sort_key(call, element, call.flag(0, "case_sensitive", false), call.find(1, "attribute"));
    call.context().charge(std::ssize(seen) * (1 + key.weight()));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
    seen.push_back(std::move(key));
    result.push_back(element);
  }
  return generator(std::move(result));
}

// Jinja's own title case: what follows white space or an opening bracket, and the rest in lower case.
TemplateValue title(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const MarkedText text = text_of(value, call);
  MarkedText result, word;
  auto finish = [&] {
    if (!word.text.empty()) result.append(template_case(word, TemplateCase::capitalize).view());
    word = {};
  };
  for (const MarkedText& character : template_characters(text)) {
    const bool border = std::string_view("-({[<").find(character.text) != std::string_view::npos ||
                        template_strip(character, std::nullopt, true, true).text.empty();
    if (border) {
      finish();
      result.append(character.view());
    } else {
      word.append(character.view());
    }
  }
  finish();
  return result;
}

TemplateValue escape(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  MarkedText text = text_of(value, call);
  call.context().charge_text(text.text.size() * 5);
  for (const auto& [from, to] :
       {std::pair{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}})
    text = template_replace(text, from, {to}, -1);
  return text;
}

TemplateValue trim(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"chars"});
  const TemplateValue* chars = call.find(0, "chars");
  const MarkedText text = text_of(value, call);
  if (!chars || chars->is(Kind::none)) return template_strip(text, std::nullopt, true, true);
  return template_strip(text, call.string(0, "chars").text, true, true);
}

template <TemplateCase how>
TemplateValue in_case(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return template_case(text_of(value, call), how);
}

TemplateValue abs_(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (!value.is_number()) call.fail(fmt::format("got {}, want a number", value.describe()));
  if (value.is(Kind::number)) return std::abs(value.number());
  return value.integer() < 0 ? template_binary(call.context(), "-", 0, value) : TemplateValue(value.integer());
}

struct Row {
  std::string_view name;
  Filter filter;
};
constexpr Row kFilters[] = {
    {"abs", abs_},
    {"capitalize", in_case<TemplateCase::capitalize>},
    {"count", length},
    {"d", default_},
    {"default", default_},
    {"dictsort", dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", first},
    {"float", float_},
    {"format",
     [](const TemplateValue& value, const TemplateCall& call) -> TemplateValue {
       return template_format(call.context(), value.to_text(), call.positional());
     }},
    {"indent", indent},
    {"int", int_},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(0);
       return TemplateValue::list(template_elements(call.context(), value));
     }},
    {"lower", in_case<TemplateCase::lower>},
    {"map", map},
    {"max", [](const TemplateValue& value, const TemplateCall& call) { return extreme(value, call, true); }},
    {"min", [](const TemplateValue& value, const TemplateCall& call) { return extreme(value, call, false); }},
    {"reject",
     [](const TemplateValue& value, const TemplateCall& call) { return selected(value, call, false, false); }},
    {"rejectattr",
     [](const TemplateValue& value, const TemplateCall& call) { return selected(value, call, false, true); }},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round_},
    {"safe", [](const TemplateValue& value, const TemplateCall&) { return value; }},
    {"select", [](const TemplateValue& value, const TemplateCall& call) { return selected(value, call, true, false); }},
    {"selectattr",
     [](const TemplateValue& value, const TemplateCall& call) { return selected(value, call, true, true); }},
    {"sort",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(3, {"reverse", "case_sensitive", "attribute"});
       return TemplateValue::list(sorted(call, template_elements(call.context(), value),
                                         call.flag(1, "case_sensitive", false), call.flag(0, "reverse", false),
                                         call.find(2, "attribute")));
     }},
    {"string",
     [](const TemplateValue& value, const TemplateCall& call) -> TemplateValue { return text_of(value, call); }},
    {"sum", sum},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", in_case<TemplateCase::upper>},
    {"wordcount",
     [](const TemplateValue& value, const TemplateCall& call) -> TemplateValue {
       return std::ssize(template_split(text_of(value, call), std::nullopt, -1, false));
     }},
};

const Row* find_filter(std::string_view name) {
  for (const Row& row : kFilters)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

bool template_has_filter(std::string_view name) { return find_filter(name); }

TemplateValue template_filter(const std::string& name, const TemplateValue& value, const TemplateCall& call) {
  call.context().charge(1);
  if (const Row* row = find_filter(name)) return row->filter(value, call);
  std::vector<std::string_view> known;
  for (const Row& row : kFilters) known.push_back(row.name);
  call.context().fail(fmt::format("found the filter \"{}\", supported are {}", name, fmt::join(known, ", ")));
}

}  // namespace megalith
