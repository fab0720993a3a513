// Reading JSON files that nobody vouches for. A JsonValue knows the file it came from and the path of keys that leads
// to it, so every complaint names both: models/x/config.json: "rope_scaling.factor" is "8", want a number.
//
// Duplicate keys and nesting beyond 64 levels are refused while parsing. The parser behind it stays in json.cpp: it
// costs two seconds in every source that includes it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A value inside a JsonFile, which must outlive it.
class JsonValue {
 public:
  /// The member `key`; UserError if it is absent or null.
  JsonValue at(std::string_view key) const;
  /// The member `key`; nothing if it is absent or null.
  std::optional<JsonValue> find(std::string_view key) const;

  /// Whether the member `key` is there at all, be it null.
  bool has(std::string_view key) const;

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  /// Typed readers: UserError naming file, key, what was found and what was wanted.
  const std::string& string() const;
  bool boolean() const;
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  double number(double least, double most) const;
  std::vector<JsonValue> elements() const;
  size_t size() const;
  void each_element(const std::function<void(const JsonValue&)>& visit) const;
  void each_member(const std::function<void(const std::string& key, const JsonValue&)>& visit) const;

  /// Throws UserError("file: "path" message").
  [[noreturn]] void fail(const std::string& message) const;
  /// The value as JSON, cut to a length fit for a message.
  std::string excerpt() const;
  const std::string& file() const { return *file_; }

 private:
  friend class JsonFile;
  JsonValue(const nlohmann::json* value, const std::string* file, std::string path)
      : value_(value), file_(file), path_(std::move(path)) {}
  JsonValue child(const nlohmann::json& value, std::string_view key) const;

  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;  // "model.vocab", "" for the root
};

/// A parsed document and its name.
class JsonFile {
 public:
  /// UserError if the file is missing, larger than `most_bytes`, or not JSON.
  static JsonFile read(const std::string& path, size_t most_bytes);
  /// `name` stands for the file in messages.
  static JsonFile parse(std::string_view text, std::string name);
  JsonFile(JsonFile&&) noexcept;
  JsonFile& operator=(JsonFile&&) noexcept;
  ~JsonFile();

  JsonValue root() const;

 private:
  JsonFile() = default;
  std::unique_ptr<std::string> name_;
  std::unique_ptr<nlohmann::json> value_;
};

}  // namespace megalith
