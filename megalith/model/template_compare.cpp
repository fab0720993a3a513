// Equality and order of template values, and what makes one a key of a dictionary.
#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_value.h"

namespace megalith {

using Kind = TemplateValue::Kind;

bool TemplateValue::is_same(const TemplateValue& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::object: return object_ == other.object_;
    default: return *this == other;  // Python shares small integers, and strings of one text more often than not
  }
}

bool TemplateValue::operator==(const TemplateValue& other) const {
  if (is_number() && other.is_number())
    return template_compare_numbers(*this, other) == std::partial_ordering::equivalent;
  if (kind_ != other.kind_) return false;
  if (object_ && object_ == other.object_) return true;
  switch (kind_) {
    case Kind::string: return text() == other.text();
    case Kind::list:
    case Kind::tuple: return list().elements == other.list().elements;
    case Kind::dict: {
      if (dict().members.size() != other.dict().members.size()) return false;
      for (const auto& [key, value] : dict().members) {
        const TemplateValue* found = other.dict().find(key);
        if (!found || !(*found == value)) return false;
      }
      return true;
    }
    case Kind::object: return object().equals(other.object());
    default: return true;  // undefined, None
  }
}

bool TemplateValue::less(const TemplateValue& other) const {
  if (is_number() && other.is_number()) return template_compare_numbers(*this, other) == std::partial_ordering::less;
  if (kind_ == other.kind_ && kind_ == Kind::string) return text() < other.text();  // UTF-8 sorts as code points do
  if (kind_ == other.kind_ && is_sequence()) {
    const auto &a = list().elements, &b = other.list().elements;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!(a[i] == b[i])) return a[i].less(b[i]);
    return a.size() < b.size();
  }
  if (kind_ == other.kind_ && kind_ == Kind::object)
    if (const std::optional<bool> within = object().within(other.object(), false)) return *within;
  throw UserError(fmt::format("{} and {} have no order", describe(), other.describe()));
}

bool TemplateValue::is_hashable() const {
  switch (kind_) {
    case Kind::list:
    case Kind::dict: return false;
    case Kind::tuple: {
      const auto& all = list().elements;
      return std::all_of(all.begin(), all.end(), [](const TemplateValue& element) { return element.is_hashable(); });
    }
    case Kind::object: return object().is_hashable();
    default: return true;
  }
}

std::string TemplateDict::index_key(const TemplateValue& key) {
  switch (key.kind()) {
    case Kind::undefined: return "u";
    case Kind::none: return "n";
    case Kind::boolean:
    case Kind::integer: return key.is_big() ? "b" + key.big().get_str(16) : "i" + fmt::format_int(key.integer()).str();
    case Kind::number: {
      const double number = key.number();
      if (std::isnan(number)) {  // equal to nothing, itself included
        thread_local uint64_t count = 0;
        return fmt::format("nan{}", ++count);
      }
      return std::floor(number) == number && std::isfinite(number) ? index_key(mpz_class(number))
                                                                   : fmt::format("f{}", number);
    }
    case Kind::string: return "s" + key.string().text;
    case Kind::tuple: {
      std::string all = "(";
      for (const TemplateValue& element : key.list().elements) {
        const std::string part = index_key(element);
        all += fmt::format("{} {}", part.size(), part);
      }
      return all;
    }
    case Kind::object:
      if (key.object().is_hashable()) return key.object().index_key();
      [[fallthrough]];
    default: throw UserError(fmt::format("{} cannot be the key of a dictionary", key.describe()));
  }
}

const TemplateValue* TemplateDict::find(const TemplateValue& key) const {
  const auto entry = index.find(index_key(key));
  return entry == index.end() ? nullptr : &members[entry->second].second;
}

const TemplateValue* TemplateDict::find(std::string_view key) const {
  const auto entry = index.find("s" + std::string(key));
  return entry == index.end() ? nullptr : &members[entry->second].second;
}

}  // namespace megalith
