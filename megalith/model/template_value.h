// Values of chat templates, with the meaning that Python gives them: what Jinja calls undefined, None, numbers,
// strings, lists and tuples, dictionaries that keep their order, and objects (template_object.h: ranges, generators,
// namespaces, macros, methods, ...). Strings carry marks of what a user wrote (marked_text.h) through every operation.
//
// Strings, lists, tuples and dictionaries never change once they are made, so they are shared. How deep values nest and
// how many parts they have, shared ones counted each time, is bounded when a container is made: nothing that walks
// values can exhaust the stack or take for ever.
#pragma once

#include <gmpxx.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/model/marked_text.h"
#include "megalith/model/template_memory.h"

namespace megalith {

class TemplateObject;
class TemplateValue;

struct TemplateString {
  explicit TemplateString(MarkedText from, bool is_markup = false);

  MarkedText text;
  bool is_markup;  // what "safe" and "escape" make: str.format, "+" and the like escape what joins it
  int64_t length;  // in characters
  TemplateHeld held;
};

struct TemplateInteger {
  explicit TemplateInteger(mpz_class from);

  mpz_class value;  // of more than 64 bits
  TemplateHeld held;
};

struct TemplateList;
struct TemplateDict;

class TemplateValue {
 public:
  enum class Kind { undefined, none, boolean, integer, number, string, list, tuple, dict, object };
  using Members = std::vector<std::pair<TemplateValue, TemplateValue>>;

  TemplateValue() = default;  // undefined
  /// A variable of that name, which nobody set.
  static TemplateValue undefined(std::string_view name);
  /// What an operation found no value for; `phrase` is for messages: "the first of nothing".
  static TemplateValue missing(std::string phrase);
  /// What the sandbox hides: undefined, and an error that says so when it is used.
  static TemplateValue unsafe(std::string phrase);
  static TemplateValue none();
  TemplateValue(bool value) : kind_(Kind::boolean), integer_(value) {}  // NOLINT: conversions are the point
  TemplateValue(int64_t value) : kind_(Kind::integer), integer_(value) {}
  TemplateValue(int value) : TemplateValue(int64_t{value}) {}
  TemplateValue(double value) : kind_(Kind::number), number_(value) {}
  TemplateValue(mpz_class value);
  TemplateValue(MarkedText text, bool is_markup = false);
  TemplateValue(std::string text) : TemplateValue(MarkedText{std::move(text)}) {}
  TemplateValue(std::string_view text) : TemplateValue(std::string(text)) {}
  TemplateValue(const char* text) : TemplateValue(std::string(text)) {}
  /// UserError if these nest too deeply or have too many parts.
  static TemplateValue list(std::vector<TemplateValue> elements);
  static TemplateValue tuple(std::vector<TemplateValue> elements);
  /// A tuple whose two elements are also .grouper and .list.
  static TemplateValue group(TemplateValue grouper, TemplateValue list);
  static TemplateValue dict(Members members);
  static TemplateValue of(std::shared_ptr<TemplateObject> object);
  /// A document in JSON, members in the file's order. `is_user_content` marks every string in it.
  static TemplateValue from_json(std::string_view text, const std::string& name, bool is_user_content = true);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::number; }
  bool is_integer() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  /// An integer of more than 64 bits.
  bool is_big() const { return kind_ == Kind::integer && object_; }

  // Of the kind that the name says; anything else is a mistake of ours.
  int64_t integer() const;
  const mpz_class& big() const;
  double number() const { return number_; }
  const MarkedText& string() const { return string_object().text; }
  std::string_view text() const { return string().text; }
  const TemplateString& string_object() const;
  bool is_markup() const { return kind_ == Kind::string && string_object().is_markup; }
  const TemplateList& list() const;  // of a tuple, too
  const TemplateDict& dict() const;
  TemplateObject& object() const;
  std::shared_ptr<TemplateObject> shared_object() const;
  /// The object, if it is one of that class.
  template <class Object>
  std::shared_ptr<Object> as() const;

  bool truth() const;
  /// As str() and repr() have it. UserError for what Python shows an address of.
  MarkedText to_text() const;
  MarkedText to_repr() const;
  /// "a string", "a list": for messages.
  std::string kind_name() const;
  /// The kind, and a short excerpt.
  std::string describe() const;

  bool operator==(const TemplateValue& other) const;
  /// Whether the two are one object.
  bool is_same(const TemplateValue& other) const;
  /// Whether this comes before `other`; UserError if the two have no order.
  bool less(const TemplateValue& other) const;
  bool is_hashable() const;
  int levels() const;
  int64_t weight() const;  // parts, with those of its parts

 private:
  static TemplateValue sequence(Kind kind, std::vector<TemplateValue> elements, bool is_group);

  Kind kind_ = Kind::undefined;
  union {
    int64_t integer_ = 0;
    double number_;
  };
  std::shared_ptr<const void> object_;
};

struct TemplateList {
  explicit TemplateList(std::vector<TemplateValue> from, bool is_group);

  std::vector<TemplateValue> elements;
  int levels = 1;
  int64_t weight = 1;
  bool is_group;
  TemplateHeld held;
};

struct TemplateDict {
  explicit TemplateDict(TemplateValue::Members from);

  TemplateValue::Members members;
  std::map<std::string, size_t, std::less<>> index;  // by index_key(): no keys make it slow, as those of a hash could
  int levels = 1;
  int64_t weight = 1;
  std::optional<TemplateHeld> held;

  /// UserError for what cannot be a key.
  const TemplateValue* find(const TemplateValue& key) const;
  const TemplateValue* find(std::string_view key) const;
  /// The same for equal keys, as 1, 1.0 and True are; UserError for what cannot be a key.
  static std::string index_key(const TemplateValue& key);
};

/// How deep values may nest; UserError if this is one too many.
int template_levels_above(int levels);

}  // namespace megalith
