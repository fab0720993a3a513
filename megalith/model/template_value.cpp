#include "megalith/model/template_value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/model/template_text.h"

namespace megalith {

namespace {

// Deeper than any tool's schema; walking a value takes a few hundred bytes of stack for each.
constexpr int kMostLevels = 100;

// Prompts have some thousand; walking this many takes a tenth of a second.
constexpr int64_t kMostWeight = 4'000'000;

int levels_above(int levels) {
  MEGALITH_CHECK(levels < kMostLevels, "a value nests deeper than {} levels", kMostLevels);
  return levels + 1;
}

int64_t checked_weight(int64_t weight) {
  MEGALITH_CHECK(weight <= kMostWeight, "a value has more than {} parts", kMostWeight);
  return weight;
}

MarkedText marked(std::string text, bool is_user_content) {
  MarkedText result{std::move(text), {}};
  if (is_user_content) result.marks.assign(result.text.size(), '\1');
  return result;
}

TemplateValue convert(const nlohmann::ordered_json& json, const std::string& name, bool is_user_content) {
  switch (json.type()) {
    case nlohmann::json::value_t::null: return TemplateValue::none();
    case nlohmann::json::value_t::boolean: return json.get<bool>();
    case nlohmann::json::value_t::number_integer: return json.get<int64_t>();
    case nlohmann::json::value_t::number_unsigned:
      MEGALITH_CHECK(json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX), "{}: the number {} is too large", name,
                     json.dump());
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_float: return json.get<double>();
    case nlohmann::json::value_t::string: return marked(json.get<std::string>(), is_user_content);
    case nlohmann::json::value_t::array: {
      std::vector<TemplateValue> elements;
      for (const auto& element : json) elements.push_back(convert(element, name, is_user_content));
      return TemplateValue::list(std::move(elements));
    }
    case nlohmann::json::value_t::object: {
      std::vector<std::pair<TemplateValue, TemplateValue>> members;
      for (const auto& [key, value] : json.items())
        members.emplace_back(marked(key, is_user_content), convert(value, name, is_user_content));
      return TemplateValue::dict(std::move(members));
    }
    default: break;
  }
  throw UserError(fmt::format("{}: not JSON", name));
}

}  // namespace

TemplateValue::TemplateValue(MarkedText text)
    : kind_(Kind::string), object_(std::make_shared<const MarkedText>(std::move(text))) {}

TemplateValue TemplateValue::undefined(std::string name) {
  TemplateValue result;
  result.object_ = std::make_shared<const std::string>(std::move(name));
  return result;
}

TemplateValue TemplateValue::none() {
  TemplateValue result;
  result.kind_ = Kind::none;
  return result;
}

TemplateValue TemplateValue::list(std::vector<TemplateValue> elements, bool is_tuple, bool is_generator) {
  auto list = std::make_shared<TemplateList>();
  int levels = 0;
  for (const TemplateValue& element : elements) {
    levels = std::max(levels, element.levels());
    list->weight = checked_weight(list->weight + element.weight());
  }
  list->levels = levels_above(levels);
  list->elements = std::move(elements);
  list->is_tuple = is_tuple;
  list->is_generator = is_generator;
  TemplateValue result;
  result.kind_ = Kind::list;
  result.object_ = std::move(list);
  return result;
}

TemplateValue TemplateValue::dict(std::vector<std::pair<TemplateValue, TemplateValue>> members) {
  auto dict = std::make_shared<TemplateDict>();
  int levels = 0;
  for (auto& [key, value] : members) {
    levels = std::max({levels, key.levels(), value.levels()});
    dict->weight = checked_weight(dict->weight + key.weight() + value.weight());
    const auto [entry, is_new] = dict->index.emplace(TemplateDict::index_key(key), dict->members.size());
    if (is_new)
      dict->members.emplace_back(std::move(key), std::move(value));
    else
      dict->members[entry->second].second = std::move(value);  // the last one counts, at the place of the first
  }
  dict->levels = levels_above(levels);
  TemplateValue result;
  result.kind_ = Kind::dict;
  result.object_ = std::move(dict);
  return result;
}

TemplateValue TemplateValue::of(std::shared_ptr<TemplateNamespace> value) {
  TemplateValue result;
  result.kind_ = Kind::namespace_;
  result.object_ = std::make_shared<const std::shared_ptr<TemplateNamespace>>(std::move(value));
  return result;
}

TemplateValue TemplateValue::of(std::shared_ptr<const TemplateMacro> value) {
  TemplateValue result;
  result.kind_ = Kind::macro;
  result.object_ = std::make_shared<const std::shared_ptr<const TemplateMacro>>(std::move(value));
  return result;
}

TemplateValue TemplateValue::function(std::string name) {
  TemplateValue result = undefined(std::move(name));
  result.kind_ = Kind::function;
  return result;
}

TemplateValue TemplateValue::method(TemplateValue object, std::string name) {
  levels_above(object.levels());
  TemplateValue result;
  result.kind_ = Kind::method;
  result.object_ = std::make_shared<const TemplateMethod>(TemplateMethod{std::move(object), std::move(name)});
  return result;
}

TemplateValue TemplateValue::from_json(std::string_view text, const std::string& name, bool is_user_content) {
  // The levels are counted before they are built: the library would follow any number of them.
  int depth = 0;
  const auto watch = [&](int, nlohmann::ordered_json::parse_event_t event, nlohmann::ordered_json&) {
    using Event = nlohmann::ordered_json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      MEGALITH_CHECK(++depth < kMostLevels, "{} nests deeper than {} levels", name, kMostLevels);
    if (event == Event::object_end || event == Event::array_end) --depth;
    return true;
  };
  try {
    return convert(nlohmann::ordered_json::parse(text, watch), name, is_user_content);
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("{} is not JSON: {}", name, error.what()));
  }
}

const MarkedText& TemplateValue::string() const {
  MEGALITH_ASSERT(kind_ == Kind::string, "a template value is {}", kind_name());
  return *static_cast<const MarkedText*>(object_.get());
}
const TemplateList& TemplateValue::list() const {
  MEGALITH_ASSERT(kind_ == Kind::list, "a template value is {}", kind_name());
  return *static_cast<const TemplateList*>(object_.get());
}
const TemplateDict& TemplateValue::dict() const {
  MEGALITH_ASSERT(kind_ == Kind::dict, "a template value is {}", kind_name());
  return *static_cast<const TemplateDict*>(object_.get());
}
const std::shared_ptr<TemplateNamespace>& TemplateValue::space() const {
  MEGALITH_ASSERT(kind_ == Kind::namespace_, "a template value is {}", kind_name());
  return *static_cast<const std::shared_ptr<TemplateNamespace>*>(object_.get());
}
const std::shared_ptr<const TemplateMacro>& TemplateValue::macro() const {
  MEGALITH_ASSERT(kind_ == Kind::macro, "a template value is {}", kind_name());
  return *static_cast<const std::shared_ptr<const TemplateMacro>*>(object_.get());
}
const TemplateMethod& TemplateValue::method() const {
  MEGALITH_ASSERT(kind_ == Kind::method, "a template value is {}", kind_name());
  return *static_cast<const TemplateMethod*>(object_.get());
}
const std::string& TemplateValue::name() const {
  static const std::string kNone;
  const bool named = kind_ == Kind::function || kind_ == Kind::undefined;
  return named && object_ ? *static_cast<const std::string*>(object_.get()) : kNone;
}

bool TemplateValue::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return integer_ != 0;
    case Kind::number: return number_ != 0;
    case Kind::string: return !text().empty();
    case Kind::list: return list().is_generator || !list().elements.empty();
    case Kind::dict: return !dict().members.empty();
    default: return true;
  }
}

int TemplateValue::levels() const {
  switch (kind_) {
    case Kind::list: return list().levels;
    case Kind::dict: return dict().levels;
    case Kind::method: return method().object.levels() + 1;
    default: return 0;
  }
}

int64_t TemplateValue::weight() const {
  switch (kind_) {
    case Kind::list: return list().weight;
    case Kind::dict: return dict().weight;
    case Kind::method: return method().object.weight() + 1;
    default: return 1;
  }
}

const char* TemplateValue::kind_name() const {
  switch (kind_) {
    case Kind::undefined: return "undefined";
    case Kind::none: return "None";
    case Kind::boolean: return "a boolean";
    case Kind::integer: return "an integer";
    case Kind::number: return "a number";
    case Kind::string: return "a string";
    case Kind::list: return list().is_generator ? "a generator" : list().is_tuple ? "a tuple" : "a list";
    case Kind::dict: return "a dictionary";
    case Kind::namespace_: return "a namespace";
    case Kind::macro: return "a macro";
    case Kind::function: return "a function";
    case Kind::method: return "a method";
  }
  return "";
}

std::string TemplateValue::describe() const {
  constexpr size_t kLongest = 40;
  if (kind_ == Kind::undefined) return name().empty() ? "undefined" : fmt::format("\"{}\", which is undefined", name());
  if (kind_ == Kind::string) {
    const std::string repr = TemplateValue(template_slice(string(), 0, kLongest)).to_repr().text;
    return fmt::format("the string {}", repr);
  }
  if (kind_ == Kind::none || !is_number()) return kind_name();
  return fmt::format("{} {}", kind_name(), to_text().text);
}

bool TemplateValue::operator==(const TemplateValue& other) const {
  if (is_number() && other.is_number())
    return is_integer() && other.is_integer() ? integer_ == other.integer_ : number() == other.number();
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: return text() == other.text();
    case Kind::list: return list().is_tuple == other.list().is_tuple && list().elements == other.list().elements;
    case Kind::dict: {
      if (dict().members.size() != other.dict().members.size()) return false;
      for (const auto& [key, value] : dict().members) {
        const TemplateValue* found = other.dict().find(key);
        if (!found || !(*found == value)) return false;
      }
      return true;
    }
    case Kind::namespace_: return space() == other.space();
    case Kind::macro: return macro() == other.macro();
    case Kind::function: return name() == other.name();
    default: return false;
  }
}

bool TemplateValue::less(const TemplateValue& other) const {
  if (is_number() && other.is_number())
    return is_integer() && other.is_integer() ? integer_ < other.integer_ : number() < other.number();
  if (is(Kind::string) && other.is(Kind::string)) return text() < other.text();  // UTF-8 sorts as its code points do
  if (is(Kind::list) && other.is(Kind::list)) {
    const auto &a = list().elements, &b = other.list().elements;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!(a[i] == b[i])) return a[i].less(b[i]);
    return a.size() < b.size();
  }
  throw UserError(fmt::format("{} and {} have no order", describe(), other.describe()));
}

std::string TemplateDict::index_key(const TemplateValue& key) {
  using Kind = TemplateValue::Kind;
  if (key.is(Kind::string)) return "s" + key.string().text;
  if (key.is_integer() ||
      (key.is(Kind::number) && key.number() == std::floor(key.number()) && std::abs(key.number()) < 9e18))
    return fmt::format("i{}", key.is_integer() ? key.integer() : static_cast<int64_t>(key.number()));
  const bool hashable = key.is(Kind::none) || key.is(Kind::undefined) || key.is(Kind::number) ||
                        (key.is(Kind::list) && key.list().is_tuple);
  MEGALITH_CHECK(hashable, "{} cannot be the key of a dictionary", key.describe());
  return "r" + key.to_repr().text;
}

const TemplateValue* TemplateDict::find(const TemplateValue& key) const {
  const auto entry = index.find(index_key(key));
  return entry == index.end() ? nullptr : &members[entry->second].second;
}

TemplateValue* TemplateNamespace::find(std::string_view name) {
  for (auto& [key, value] : members)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace megalith
