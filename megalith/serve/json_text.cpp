#include "megalith/serve/json_text.h"

#include <fmt/format.h>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

std::string json_text(const JsonValue& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return value.boolean() ? "true" : "false";
  if (value.is_string()) return json_quote(value.string());
  std::string text;
  if (value.is_array()) {
    value.each_element([&](const JsonValue& one) { text += (text.empty() ? "" : ",") + json_text(one); });
    return "[" + text + "]";
  }
  if (value.is_object()) {
    value.each_member([&](const std::string& key, const JsonValue& one) {
      text += (text.empty() ? "" : ",") + json_quote(key) + ":" + json_text(one);
    });
    return "{" + text + "}";
  }
  constexpr double kExact = 9e15;  // whole numbers below are written as such
  const double number = value.find_number().value();
  return value.is_integer() && number > -kExact && number < kExact ? fmt::format("{}", static_cast<int64_t>(number))
                                                                   : fmt::format("{}", number);
}

}  // namespace megalith::serve
