// Values of chat templates, with the meaning that Python gives them: what Jinja calls undefined, None, numbers,
// strings, lists and tuples, dictionaries that keep their order, namespaces, macros, methods. Strings carry marks of
// what a user wrote (marked_text.h) through every operation.
//
// Lists and dictionaries never change once they are made, so they are shared; a namespace is the one thing that a
// template can assign to. How deep they nest and how many parts they have, shared ones counted each time, is bounded
// when a container is made: nothing that walks values can exhaust the stack or take for ever.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megalith/model/marked_text.h"

namespace megalith {

class TemplateValue;
struct TemplateNamespace;
struct TemplateMacro;

struct TemplateList {
  std::vector<TemplateValue> elements;
  int levels = 1;
  int64_t weight = 1;  // parts, with those of its parts
  bool is_tuple = false;
  // What Jinja makes of map, select and reverse: true whatever it holds, gone through once, without length or
  // subscript.
  bool is_generator = false;
  mutable bool is_consumed = false;
};

struct TemplateDict;

/// A method that was named but not called yet: message.items.
struct TemplateMethod;

class TemplateValue {
 public:
  enum class Kind {
    undefined,
    none,
    boolean,
    integer,
    number,
    string,
    list,
    dict,
    namespace_,
    macro,
    function,
    method
  };

  TemplateValue() = default;  // undefined
  static TemplateValue undefined(std::string name);
  static TemplateValue none();
  TemplateValue(bool value) : kind_(Kind::boolean), integer_(value) {}  // NOLINT: conversions are the point
  TemplateValue(int64_t value) : kind_(Kind::integer), integer_(value) {}
  TemplateValue(int value) : TemplateValue(int64_t{value}) {}
  TemplateValue(double value) : kind_(Kind::number), number_(value) {}
  TemplateValue(MarkedText text);
  TemplateValue(std::string text) : TemplateValue(MarkedText{std::move(text)}) {}
  TemplateValue(std::string_view text) : TemplateValue(std::string(text)) {}
  TemplateValue(const char* text) : TemplateValue(std::string(text)) {}
  /// UserError if that nests too deeply.
  static TemplateValue list(std::vector<TemplateValue> elements, bool is_tuple = false, bool is_generator = false);
  static TemplateValue dict(std::vector<std::pair<TemplateValue, TemplateValue>> members);
  static TemplateValue of(std::shared_ptr<TemplateNamespace> value);
  static TemplateValue of(std::shared_ptr<const TemplateMacro> value);
  static TemplateValue function(std::string name);
  static TemplateValue method(TemplateValue object, std::string name);
  /// A document in JSON, members in the file's order. `is_user_content` marks every string in it.
  static TemplateValue from_json(std::string_view text, const std::string& name, bool is_user_content = true);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::number; }
  bool is_integer() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }

  // Of the kind that the name says; anything else is a mistake of ours.
  int64_t integer() const { return integer_; }
  double number() const { return kind_ == Kind::number ? number_ : static_cast<double>(integer_); }
  const MarkedText& string() const;
  std::string_view text() const { return string().text; }
  const TemplateList& list() const;
  const TemplateDict& dict() const;
  const std::shared_ptr<TemplateNamespace>& space() const;
  const std::shared_ptr<const TemplateMacro>& macro() const;
  const TemplateMethod& method() const;
  /// Of a function, or of what is not defined.
  const std::string& name() const;

  bool truth() const;
  /// As str() and repr() have it.
  MarkedText to_text() const;
  MarkedText to_repr() const;
  /// "a string", "a list": for messages.
  const char* kind_name() const;
  /// The kind, and a short excerpt.
  std::string describe() const;

  bool operator==(const TemplateValue& other) const;
  /// Whether this comes before `other`; UserError if the two have no order.
  bool less(const TemplateValue& other) const;
  int levels() const;
  int64_t weight() const;

 private:
  Kind kind_ = Kind::undefined;
  int64_t integer_ = 0;
  double number_ = 0;
  std::shared_ptr<const void> object_;
};

struct TemplateDict {
  std::vector<std::pair<TemplateValue, TemplateValue>> members;
  std::unordered_map<std::string, size_t> index;  // by index_key()
  int levels = 1;
  int64_t weight = 1;

  const TemplateValue* find(const TemplateValue& key) const;
  /// The same for equal keys, as 1 and 1.0 are; UserError for what cannot be a key.
  static std::string index_key(const TemplateValue& key);
};

struct TemplateMethod {
  TemplateValue object;
  std::string name;
};

struct TemplateNamespace {
  std::vector<std::pair<std::string, TemplateValue>> members;
  TemplateValue* find(std::string_view name);
};

/// As Python's json.dumps without ensure_ascii; `indent` below 0: on one line. UserError for what has no JSON.
MarkedText template_to_json(const TemplateValue& value, int indent, bool sort_keys, const std::string& item_separator,
                            const std::string& key_separator);

}  // namespace megalith
