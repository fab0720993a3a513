#include "megalith/serve/fields.h"

namespace megalith::serve {

JsonFile parse_body(std::string_view body) {
  try {
    JsonFile file = JsonFile::parse(body, "the request's body", true);
    if (!file.root().is_object()) file.root().fail("is " + file.root().excerpt() + ", want a JSON object");
    return file;
  } catch (const UserError& error) { throw ApiError::invalid(error.what()); }
}

std::optional<double> Fields::number(const char* key, double least, double most) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  return read(key, *value, [&](const JsonValue& one) { return one.number(least, most); });
}

std::optional<int64_t> Fields::integer(const char* key, int64_t least, int64_t most) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  return read(key, *value, [&](const JsonValue& one) { return one.integer(least, most); });
}

std::optional<std::string> Fields::string(const char* key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  return read(key, *value, [](const JsonValue& one) { return one.string(); });
}

bool Fields::flag(const char* key, bool otherwise) const {
  const auto value = find(key);
  return value ? read(key, *value, [](const JsonValue& one) { return one.boolean(); }) : otherwise;
}

std::optional<std::vector<int>> Fields::integers(const char* key, int64_t least, int64_t most) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  return read(key, *value, [&](const JsonValue& all) {
    std::vector<int> result;
    all.each_element([&](const JsonValue& one) { result.push_back(static_cast<int>(one.integer(least, most))); });
    return result;
  });
}

}  // namespace megalith::serve
