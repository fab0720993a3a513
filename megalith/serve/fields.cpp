#include "megalith/serve/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith::serve {

JsonFile parse_body(std::string_view body) {
  try {
    JsonFile file = JsonFile::parse(body, "the request's body", true);
    if (!file.root().is_object()) file.root().fail("is " + file.root().excerpt() + ", want a JSON object");
    return file;
  } catch (const UserError& error) { throw ApiError::invalid(error.what()); }
}

// Each once; a reader that looks again knows more of it.
void Fields::note(MemberFact fact) const {
  const auto known = std::ranges::find(*facts_, fact.key, &MemberFact::key);
  if (known == facts_->end()) return facts_->push_back(std::move(fact));
  if (known->schema.empty()) known->schema = std::move(fact.schema);
  known->is_required |= fact.is_required;
}

std::optional<JsonValue> Fields::find(const char* key, std::string_view schema) const {
  if (facts_) note({key, std::string(schema)});
  return object_.find(key);
}

JsonValue Fields::need(const char* key, std::string_view schema) const {
  if (facts_) note({key, std::string(schema), true});
  if (auto value = object_.find(key)) return *value;
  throw ApiError::invalid(fmt::format("the request's body lacks \"{}\"", key), key);
}

// A member that is null is absent.
template <class Schema>
std::optional<JsonValue> Fields::look(const char* key, Schema schema) const {
  if (facts_) note({key, schema()});
  return object_.find(key);
}

std::optional<double> Fields::number(const char* key, double least, double most) const {
  const auto value =
      look(key, [&] { return fmt::format(R"({{"type":["number","null"],"minimum":{},"maximum":{}}})", least, most); });
  if (!value) return std::nullopt;
  return read(key, *value, [&](const JsonValue& one) { return one.number(least, most); });
}

std::optional<int64_t> Fields::integer(const char* key, int64_t least, int64_t most) const {
  const auto value =
      look(key, [&] { return fmt::format(R"({{"type":["integer","null"],"minimum":{},"maximum":{}}})", least, most); });
  if (!value) return std::nullopt;
  return read(key, *value, [&](const JsonValue& one) { return one.integer(least, most); });
}

std::optional<std::string> Fields::string(const char* key) const {
  const auto value = look(key, [] { return R"({"type":["string","null"]})"; });
  if (!value) return std::nullopt;
  return read(key, *value, [](const JsonValue& one) { return one.string(); });
}

std::optional<bool> Fields::flag(const char* key) const {
  const auto value = look(key, [] { return R"({"type":["boolean","null"]})"; });
  if (!value) return std::nullopt;
  return read(key, *value, [](const JsonValue& one) { return one.boolean(); });
}

bool Fields::flag(const char* key, bool otherwise) const {
  const auto value = look(key, [&] { return fmt::format(R"({{"type":["boolean","null"],"default":{}}})", otherwise); });
  return value ? read(key, *value, [](const JsonValue& one) { return one.boolean(); }) : otherwise;
}

std::optional<std::vector<int>> Fields::integers(const char* key, int64_t least, int64_t most) const {
  const auto value = look(key, [&] {
    return fmt::format(R"({{"type":["array","null"],"items":{{"type":"integer","minimum":{},"maximum":{}}}}})", least,
                       most);
  });
  if (!value) return std::nullopt;
  return read(key, *value, [&](const JsonValue& all) {
    std::vector<int> result;
    all.each_element([&](const JsonValue& one) { result.push_back(static_cast<int>(one.integer(least, most))); });
    return result;
  });
}

}  // namespace megalith::serve
