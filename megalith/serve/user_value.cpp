#include "megalith/serve/user_value.h"

#include <cmath>
#include <utility>
#include <vector>

namespace megalith::serve {

TemplateValue user_text(const std::string& text) {
  return TemplateValue(MarkedText{text, std::string(text.size(), '\1')});
}

TemplateValue user_value(const JsonValue& value) {
  if (value.is_string()) return user_text(value.string());
  if (value.is_boolean()) return value.boolean();
  if (value.is_array()) {
    std::vector<TemplateValue> elements;
    value.each_element([&](const JsonValue& one) { elements.push_back(user_value(one)); });
    return TemplateValue::list(std::move(elements));
  }
  if (value.is_object()) {
    TemplateValue::Members members;
    value.each_member(
        [&](const std::string& key, const JsonValue& one) { members.emplace_back(user_text(key), user_value(one)); });
    return TemplateValue::dict(std::move(members));
  }
  const std::optional<double> number = value.find_number();
  if (!number) return TemplateValue::none();
  // Python tells 1 and 1.0 apart, and so do templates that print them.
  constexpr double kMost = 9.2e18;  // that a 64-bit integer surely holds
  if (value.is_integer() && std::fabs(*number) <= kMost) return TemplateValue(value.integer());
  return TemplateValue(*number);
}

}  // namespace megalith::serve
