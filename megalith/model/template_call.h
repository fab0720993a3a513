// The arguments of one call of a filter, test, method or function, and readers that fail with its name.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/model/template_context.h"
#include "megalith/model/template_value.h"

namespace megalith {

class TemplateCall {
 public:
  using Named = std::vector<std::pair<std::string, TemplateValue>>;

  /// `role` and `name` are for messages: "the filter", "indent"; or "", "range".
  TemplateCall(TemplateContext& context, const char* role, std::string name, std::vector<TemplateValue> positional = {},
               Named named = {})
      : context_(&context),
        role_(role),
        name_(std::move(name)),
        arguments_(std::make_shared<const Arguments>(Arguments{std::move(positional), std::move(named)})) {}
  /// The same arguments for what knows its name better.
  TemplateCall of(const char* role, std::string name) const {
    TemplateCall call = *this;
    call.role_ = role;
    call.name_ = std::move(name);
    return call;
  }

  TemplateContext& context() const { return *context_; }
  [[noreturn]] void fail(const std::string& message) const;
  /// Fails if there are more than these; `names` are those of the positions, and further ones that need their name.
  /// An empty name: the argument has none to be given by.
  void check(size_t most_positional, std::initializer_list<std::string_view> names = {}) const;

  /// The argument at a position, or of a name (may be ""); null if it is absent.
  const TemplateValue* find(size_t position, std::string_view name = "") const;
  /// The same; null for None, too.
  const TemplateValue* find_some(size_t position, std::string_view name = "") const;
  const TemplateValue& at(size_t position, std::string_view name = "") const;
  const MarkedText& string(size_t position, std::string_view name = "") const;
  int64_t integer(size_t position, std::string_view name, int64_t absent) const;
  bool flag(size_t position, std::string_view name, bool absent) const;

  const std::vector<TemplateValue>& positional() const { return arguments_->positional; }
  const Named& named() const { return arguments_->named; }
  const std::string& name() const { return name_; }

 private:
  struct Arguments {
    std::vector<TemplateValue> positional;
    Named named;
  };

  TemplateContext* context_;
  const char* role_;
  std::string name_;
  std::shared_ptr<const Arguments> arguments_;
};

/// str(value) and repr(value), charged.
MarkedText template_str(TemplateContext& context, const TemplateValue& value);
MarkedText template_repr(TemplateContext& context, const TemplateValue& value);

/// The same as template_str(), but that of a string is not copied.
class TemplateTextOf {
 public:
  TemplateTextOf(TemplateContext& context, const TemplateValue& value);
  TemplateTextOf(const TemplateTextOf&) = delete;
  TemplateTextOf& operator=(const TemplateTextOf&) = delete;
  MarkedView view() const { return view_; }
  operator MarkedView() const { return view_; }  // NOLINT: it stands for the text
  std::string_view text() const { return view_.text; }

 private:
  TemplateValue value_;
  MarkedText made_;
  MarkedView view_;
};

}  // namespace megalith
