#include "megalith/model/template_value.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_text.h"

namespace megalith {

namespace {

// Deeper than any tool's schema; walking a value takes a few hundred bytes of stack for each.
constexpr int kMaxLevels = 100;

// Prompts have some thousand; walking this many takes a tenth of a second.
constexpr int64_t kMaxWeight = 4'000'000;

// A long text weighs more than one part: a list may hold it many times, and each time it is compared or printed.
constexpr size_t kBytesPerPart = 256;
// So does a large integer: it may be compared, or written as the key of a dictionary.
constexpr int64_t kBitsPerPart = 128;

int64_t checked_weight(int64_t weight) {
  MEGALITH_CHECK(weight <= kMaxWeight, "a value has more than {} parts", kMaxWeight);
  return weight;
}

struct Undefined {
  explicit Undefined(std::string from) : phrase(std::move(from)), held(sizeof(Undefined) + 32 + phrase.size()) {}

  std::string phrase;  // with its article and what is the matter with it
  TemplateHeld held;
};

}  // namespace

int template_levels_above(int levels) {
  MEGALITH_CHECK(levels < kMaxLevels, "a value nests deeper than {} levels", kMaxLevels);
  return levels + 1;
}

TemplateString::TemplateString(MarkedText from, bool markup)
    : text(std::move(from)),
      is_markup(markup),
      length(template_length(text.text)),
      held(sizeof(TemplateString) + 32 + text.text.size() + text.marks.size()) {}

TemplateInteger::TemplateInteger(mpz_class from)
    : value(std::move(from)), held(sizeof(TemplateInteger) + 32 + mpz_size(value.get_mpz_t()) * sizeof(mp_limb_t)) {}

TemplateList::TemplateList(std::vector<TemplateValue> from, bool group)
    : elements(std::move(from)),
      is_group(group),
      held(sizeof(TemplateList) + 32 + elements.size() * sizeof(TemplateValue)) {
  int deepest = 0;
  for (const TemplateValue& element : elements) {
    deepest = std::max(deepest, element.levels());
    weight = checked_weight(weight + element.weight());
  }
  levels = template_levels_above(deepest);
}

TemplateDict::TemplateDict(TemplateValue::Members from) {
  int deepest = 0;
  size_t bytes = sizeof(TemplateDict) + 32;
  for (auto& [key, value] : from) {
    deepest = std::max({deepest, key.levels(), value.levels()});
    weight = checked_weight(weight + key.weight() + value.weight());
    const auto [entry, is_new] = index.emplace(index_key(key), members.size());
    bytes += sizeof(from[0]) + 96 + entry->first.size();
    if (is_new)
      members.emplace_back(std::move(key), std::move(value));
    else
      members[entry->second].second = std::move(value);  // the last one counts, at the place of the first
  }
  levels = template_levels_above(deepest);
  held.emplace(bytes);
}

TemplateValue::TemplateValue(mpz_class value) : kind_(Kind::integer) {
  if (value.fits_slong_p())
    integer_ = value.get_si();
  else
    object_ = std::make_shared<const TemplateInteger>(std::move(value));
}

TemplateValue::TemplateValue(MarkedText text, bool is_markup)
    : kind_(Kind::string), object_(std::make_shared<const TemplateString>(std::move(text), is_markup)) {}

TemplateValue TemplateValue::undefined(std::string_view name) {
  // Any text may be asked for as a name.
  constexpr int64_t kLongest = 100;
  const size_t end = template_place(name, kLongest);
  return missing(fmt::format("\"{}{}\"", name.substr(0, end), end < name.size() ? "..." : ""));
}

TemplateValue TemplateValue::missing(std::string phrase) { return unsafe(std::move(phrase) + ", which is undefined"); }

TemplateValue TemplateValue::unsafe(std::string phrase) {
  TemplateValue result;
  result.object_ = std::make_shared<const Undefined>(std::move(phrase));
  return result;
}

TemplateValue TemplateValue::none() {
  TemplateValue result;
  result.kind_ = Kind::none;
  return result;
}

TemplateValue TemplateValue::sequence(Kind kind, std::vector<TemplateValue> elements, bool is_group) {
  TemplateValue result;
  result.object_ = std::make_shared<const TemplateList>(std::move(elements), is_group);
  result.kind_ = kind;
  return result;
}

TemplateValue TemplateValue::list(std::vector<TemplateValue> elements) {
  return sequence(Kind::list, std::move(elements), false);
}

TemplateValue TemplateValue::tuple(std::vector<TemplateValue> elements) {
  return sequence(Kind::tuple, std::move(elements), false);
}

TemplateValue TemplateValue::group(TemplateValue grouper, TemplateValue list) {
  return sequence(Kind::tuple, {std::move(grouper), std::move(list)}, true);
}

TemplateValue TemplateValue::dict(Members members) {
  TemplateValue result;
  result.object_ = std::make_shared<const TemplateDict>(std::move(members));
  result.kind_ = Kind::dict;
  return result;
}

TemplateValue TemplateValue::of(std::shared_ptr<TemplateObject> object) {
  TemplateValue result;
  result.object_ = std::move(object);
  result.kind_ = Kind::object;
  return result;
}

int64_t TemplateValue::integer() const {
  MEGALITH_ASSERT(is_integer() && !is_big(), "a template value is {}, want a small integer", kind_name());
  return integer_;
}
const mpz_class& TemplateValue::big() const {
  MEGALITH_ASSERT(is_big(), "a template value is {}, want a large integer", kind_name());
  return static_cast<const TemplateInteger*>(object_.get())->value;
}
const TemplateString& TemplateValue::string_object() const {
  MEGALITH_ASSERT(kind_ == Kind::string, "a template value is {}", kind_name());
  return *static_cast<const TemplateString*>(object_.get());
}
const TemplateList& TemplateValue::list() const {
  MEGALITH_ASSERT(is_sequence(), "a template value is {}", kind_name());
  return *static_cast<const TemplateList*>(object_.get());
}
const TemplateDict& TemplateValue::dict() const {
  MEGALITH_ASSERT(kind_ == Kind::dict, "a template value is {}", kind_name());
  return *static_cast<const TemplateDict*>(object_.get());
}
TemplateObject& TemplateValue::object() const { return *shared_object(); }
std::shared_ptr<TemplateObject> TemplateValue::shared_object() const {
  MEGALITH_ASSERT(kind_ == Kind::object, "a template value is {}", kind_name());
  return std::const_pointer_cast<TemplateObject>(std::static_pointer_cast<const TemplateObject>(object_));
}

bool TemplateValue::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return is_big() || integer_ != 0;
    case Kind::number: return number_ != 0;
    case Kind::string: return !text().empty();
    case Kind::list:
    case Kind::tuple: return !list().elements.empty();
    case Kind::dict: return !dict().members.empty();
    case Kind::object: return object().truth();
  }
  return false;
}

int TemplateValue::levels() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple: return list().levels;
    case Kind::dict: return dict().levels;
    case Kind::object: return object().levels();
    default: return 0;
  }
}

int64_t TemplateValue::weight() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple: return list().weight;
    case Kind::dict: return dict().weight;
    case Kind::object: return object().weight();
    case Kind::string: return 1 + static_cast<int64_t>(text().size() / kBytesPerPart);
    case Kind::integer: return is_big() ? 1 + template_bits(*this) / kBitsPerPart : 1;
    default: return 1;
  }
}

std::string TemplateValue::kind_name() const {
  switch (kind_) {
    case Kind::undefined: return "undefined";
    case Kind::none: return "None";
    case Kind::boolean: return "a boolean";
    case Kind::integer: return "an integer";
    case Kind::number: return "a number";
    case Kind::string: return "a string";
    case Kind::list: return "a list";
    case Kind::tuple: return "a tuple";
    case Kind::dict: return "a dictionary";
    case Kind::object: return object().kind_name();
  }
  return "";
}

std::string TemplateValue::describe() const {
  constexpr size_t kLongest = 40;
  if (kind_ == Kind::undefined) return object_ ? static_cast<const Undefined*>(object_.get())->phrase : "undefined";
  if (kind_ == Kind::string)
    return fmt::format("the string {}", template_quote(template_slice(string().view(), 0, kLongest).view()).text);
  if (!is_number()) return kind_name();
  if (is_big()) return fmt::format("an integer of {} bits", template_bits(*this));
  return fmt::format("{} {}", kind_name(), to_text().text);
}

}  // namespace megalith
