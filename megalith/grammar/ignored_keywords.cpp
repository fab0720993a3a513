#include "megalith/grammar/ignored_keywords.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "megalith/model/json.h"

namespace megalith::grammar {

namespace {

constexpr std::array<std::string_view, 10> kIgnored = {
    "not",         "if",       "then",        "else",       "dependentRequired", "dependentSchemas",
    "uniqueItems", "contains", "minContains", "maxContains"};
// Their members are names of the client's, each with a schema.
constexpr std::array<std::string_view, 4> kNamed = {"properties", "patternProperties", "$defs", "definitions"};
// Values, in which a word is no keyword.
constexpr std::array<std::string_view, 4> kValues = {"enum", "const", "default", "examples"};

bool is_one_of(const auto& words, std::string_view word) { return std::ranges::find(words, word) != words.end(); }

// As deep as JsonFile lets it nest.
std::string find_ignored(const JsonValue& value, bool is_schema) {
  std::string found;
  const auto look = [&](const JsonValue& one, bool has_keywords) {
    if (found.empty()) found = find_ignored(one, has_keywords);
  };
  if (value.is_array()) value.each_element([&](const JsonValue& one) { look(one, is_schema); });
  if (!value.is_object()) return found;
  value.each_member([&](const std::string& key, const JsonValue& one) {
    const bool is_off = one.is_boolean() && !one.boolean();
    if (!is_schema) return look(one, true);
    if (is_one_of(kIgnored, key) && !is_off && found.empty()) found = key;
    if (!is_one_of(kValues, key)) look(one, !is_one_of(kNamed, key));
  });
  return found;
}

}  // namespace

std::string ignored_keyword(const std::string& schema) {
  return find_ignored(JsonFile::parse(schema, "the schema").root(), true);
}

}  // namespace megalith::grammar
