// A JSON text as the flat list of its values, in the order of the text: 16 bytes a value, made in one pass. A task graph's
// file has as many values as it likes, and a tree of them would take ten times the file. Stands below json.h, which says
// what the values mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith::task {

class JsonText;

/// A value of a JsonText, which must outlive it.
class JsonValue {
 public:
  /// `number`: one that is no whole number of 64 bits.
  enum class Kind : uint32_t { null, no, yes, integer, number, string, array, object };

  JsonValue() = default;
  JsonValue(const JsonText& text, uint32_t index) : text_(&text), index_(index) {}

  Kind kind() const;
  /// Elements of an array, members of an object.
  uint32_t size() const;
  /// Of a string.
  std::string_view string() const;
  /// A whole number of 64 bits, written without a fraction or an exponent.
  std::optional<int64_t> integer() const;
  /// Any number.
  std::optional<double> number() const;
  /// What it is, for messages; shortened where it is long.
  std::string summary() const;

  /// The value behind this one: the next element of the same array.
  JsonValue next() const;
  /// Of an array or an object that is not empty. The members of an object are key, value, key, value, ...
  JsonValue first() const { return {*text_, index_ + 1}; }

 private:
  const JsonText* text_ = nullptr;
  uint32_t index_ = 0;
};

class JsonText {
 public:
  /// UserError if `text` is not JSON, nests too deep, or has an object with one key twice or with too many.
  explicit JsonText(std::string_view text);

  JsonValue root() const { return {*this, 0}; }

 private:
  friend class JsonValue;
  friend class JsonReader;
  struct Entry {
    int64_t value;       // of an integer; of a string or a number where its text begins in `texts_`
    uint32_t next;       // the value behind it
    uint32_t kind : 3;   // JsonValue::Kind
    uint32_t size : 29;  // characters of a text, elements of an array, members of an object
  };
  static_assert(sizeof(Entry) == 16);

  std::vector<Entry> entries_;
  std::string texts_;  // of all strings and numbers; keys once each
};

/// A string in quotes, for messages: shortened where it is long.
std::string json_summary(std::string_view text);

}  // namespace megalith::task
