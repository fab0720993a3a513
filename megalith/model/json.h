// Reading JSON files that nobody vouches for. A JsonValue knows the file it came from and the path of keys that leads
// to it, so every complaint names both: models/x/config.json: "rope_scaling.factor" is "8", want a number.
//
// Duplicate keys, nesting beyond 64 levels and more values than any published file has are refused while parsing. NaN,
// Infinity and -Infinity are numbers, as Python writes them. The parser behind it stays in json.cpp: it costs two
// seconds in every source that includes it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace megalith {

/// Of each object, its keys as the file has them; they belong to the document.
using JsonOrder = std::unordered_map<const void*, std::vector<const std::string*>>;

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
  bool is_boolean() const;
  bool is_null() const;
  /// A number that is written without a point or an exponent.
  bool is_integer() const;

  /// Typed readers: UserError naming file, key, what was found and what was wanted.
  const std::string& string() const;
  bool boolean() const;
  /// 50.0 is a whole number, too: JSON does not tell them apart.
  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  double number(double least, double most) const;
  /// Any number, NaN too; nothing if it is something else.
  std::optional<double> find_number() const;
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
  JsonValue(const nlohmann::json* value, const std::string* file, const JsonOrder* order, std::string path)
      : value_(value), file_(file), order_(order), path_(std::move(path)) {}
  JsonValue child(const nlohmann::json& value, std::string_view key) const;

  const nlohmann::json* value_;
  const std::string* file_;
  const JsonOrder* order_;
  std::string path_;  // "model.vocab", "" for the root
};

/// A parsed document and its name.
class JsonFile {
 public:
  /// UserError if the file is missing, larger than `most_bytes`, or not JSON.
  /// `keeps_order`: members of objects are visited in the order in which the file has them.
  static JsonFile read(const std::string& path, size_t most_bytes, bool keeps_order = false);
  /// `name` stands for the file in messages.
  static JsonFile parse(std::string_view text, std::string name, bool keeps_order = false);
  JsonFile(JsonFile&&) noexcept;
  JsonFile& operator=(JsonFile&&) noexcept;
  ~JsonFile();

  JsonValue root() const;

 private:
  JsonFile() = default;
  std::unique_ptr<std::string> name_;
  std::unique_ptr<nlohmann::json> value_;
  std::unique_ptr<JsonOrder> order_;  // null if it is not kept
};

}  // namespace megalith
