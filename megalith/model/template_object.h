// What templates meet that is neither data nor a number: ranges, views of dictionaries, generators, namespaces, macros,
// methods, the variable "loop". Each is an object with the operations that it has in Python; what it has not is an
// error, or undefined.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/model/template_memory.h"
#include "megalith/model/template_value.h"

namespace megalith {

class TemplateCall;
class TemplateContext;

/// Goes through values, once.
class TemplateIterator {
 public:
  virtual ~TemplateIterator() = default;
  virtual std::optional<TemplateValue> next() = 0;
};

class TemplateObject : public std::enable_shared_from_this<TemplateObject> {
 public:
  virtual ~TemplateObject() = default;

  /// "a range": for messages.
  virtual std::string kind_name() const = 0;
  virtual bool truth() { return true; }
  virtual std::optional<int64_t> length() { return std::nullopt; }
  /// Null: it cannot be gone through.
  virtual std::unique_ptr<TemplateIterator> iterate() { return nullptr; }
  /// object.name; null: there is none.
  virtual std::optional<TemplateValue> attribute(std::string_view) { return std::nullopt; }
  /// object[key]; null: there is none.
  virtual std::optional<TemplateValue> item(const TemplateValue&) { return std::nullopt; }
  /// Whether `value` is in it; null: look through the elements.
  virtual std::optional<bool> contains(const TemplateValue&) { return std::nullopt; }
  virtual bool is_callable() const { return false; }
  virtual TemplateValue call(const TemplateCall& call);
  /// repr(); UserError where Python shows an address.
  virtual MarkedText repr() {
    throw UserError(kind_name() + " cannot be printed: Python shows its address, which differs from run to run");
  }
  virtual bool equals(const TemplateObject& other) const { return this == &other; }
  /// Whether this is a part of `other` (<) or all of it (<=); null: the two have no order.
  virtual std::optional<bool> within(const TemplateObject&, bool) const { return std::nullopt; }
  virtual bool is_hashable() const { return true; }
  virtual std::string index_key() const;
  /// How deep it nests, and its parts, for what walks it.
  virtual int levels() const { return 0; }
  virtual int64_t weight() const { return 1; }

  /// Lets go of what it holds: at the end of a rendering, of objects that may hold each other.
  virtual void clear() {}

 private:
  TemplateHeld held_{256};
};

template <class Object>
std::shared_ptr<Object> TemplateValue::as() const {
  return kind_ == Kind::object ? std::dynamic_pointer_cast<Object>(shared_object()) : nullptr;
}

/// A method of that name.
TemplateValue template_callable(std::string name, std::function<TemplateValue(const TemplateCall&)> function,
                                int levels = 0);
/// What map and select make: whatever `next` gives, one after the other, once. `levels` is how deep it nests.
TemplateValue template_generator(std::function<std::optional<TemplateValue>()> next, int levels);
TemplateValue template_range(const mpz_class& begin, const mpz_class& end, const mpz_class& step);
/// value[begin:end:step] of a range, the bounds within it; null for anything else.
std::optional<TemplateValue> template_range_slice(const TemplateValue& value, int64_t begin, int64_t end, int64_t step);
enum class TemplateViewKind { keys, values, items };
TemplateValue template_view(TemplateValue dict, TemplateViewKind kind);

/// What can be gone through: an error for anything else. Each step is charged.
std::unique_ptr<TemplateIterator> template_iterate(TemplateContext& context, const TemplateValue& value);
/// All elements that are left, in order.
std::vector<TemplateValue> template_elements(TemplateContext& context, const TemplateValue& value);
/// Backwards; an error for what Python's reversed() refuses.
std::vector<TemplateValue> template_reversed(TemplateContext& context, const TemplateValue& value);
/// len(value), if it has one.
std::optional<int64_t> template_length_of(const TemplateValue& value);

}  // namespace megalith
