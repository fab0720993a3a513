// What everything that evaluates a chat template shares: where it is, what it may still spend, and the arguments of
// calls. A template comes with a model and messages come from strangers, so both steps and bytes are bounded.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/model/template_value.h"

namespace megalith {

class TemplateContext {
 public:
  TemplateContext(const std::string& template_name, std::optional<std::time_t> now)
      : now_(now), template_name_(template_name) {}

  void at_line(int line) { line_ = line; }
  [[noreturn]] void fail(const std::string& message) const;
  /// Spends steps; an error when there are none left.
  void charge(int64_t steps);
  /// Spends what making `bytes` of text takes; an error if that is too long for one text.
  void charge_text(size_t bytes);
  /// An error if that is too long for one text.
  void check_length(size_t bytes) const;

  std::time_t now() const;

 private:
  std::optional<std::time_t> now_;
  const std::string& template_name_;
  int line_ = 1;
  int64_t steps_left_ = kMostSteps;

  // A step takes about 100 ns, so a hostile template ends within seconds. A thousand messages take some 200,000.
  static constexpr int64_t kMostSteps = 10'000'000;
};

/// The arguments of one call, of a filter, test, method or function. Readers fail with its name.
class TemplateCall {
 public:
  using Named = std::vector<std::pair<std::string, TemplateValue>>;

  /// `what` it is for messages: "the filter \"indent\"".
  TemplateCall(TemplateContext& context, std::string what, std::vector<TemplateValue> positional = {}, Named named = {})
      : context_(context), what_(std::move(what)), positional_(std::move(positional)), named_(std::move(named)) {}

  TemplateContext& context() const { return context_; }
  [[noreturn]] void fail(const std::string& message) const { context_.fail(what_ + " " + message); }
  /// Fails if there are more than these; `names` are those of the positions, and further ones that need their name.
  void check(size_t most_positional, std::initializer_list<std::string_view> names = {}) const;

  /// The argument at a position, or of a name (may be ""); null if it is absent.
  const TemplateValue* find(size_t position, std::string_view name = "") const;
  const TemplateValue& at(size_t position, std::string_view name = "") const;
  const MarkedText& string(size_t position, std::string_view name = "") const;
  int64_t integer(size_t position, std::string_view name, int64_t absent) const;
  bool flag(size_t position, std::string_view name, bool absent) const;

  const std::vector<TemplateValue>& positional() const { return positional_; }
  const Named& named() const { return named_; }

 private:
  TemplateContext& context_;
  std::string what_;
  std::vector<TemplateValue> positional_;
  Named named_;
};

/// The elements that a loop over `value` visits, in order; an error if it cannot be gone through.
std::vector<TemplateValue> template_elements(TemplateContext& context, const TemplateValue& value);

/// value | name(call)
TemplateValue template_filter(const std::string& name, const TemplateValue& value, const TemplateCall& call);
/// value is name(call)
bool template_test(const std::string& name, const TemplateValue& value, const TemplateCall& call);
/// Whether there is one of this name.
bool template_has_filter(std::string_view name);
bool template_has_test(std::string_view name);
/// object.name(call), of a string, list or dictionary.
TemplateValue template_method(const std::string& name, const TemplateValue& object, const TemplateCall& call);
/// Whether values of that kind have it, be it supported or not.
bool template_has_method(const TemplateValue& object, std::string_view name);
/// name(call): range, namespace, ...
TemplateValue template_function(const std::string& name, const TemplateCall& call);
const std::vector<std::string_view>& template_functions();

/// left op right, for arithmetic; "%" formats strings.
TemplateValue template_binary(TemplateContext& context, std::string_view op, const TemplateValue& left,
                              const TemplateValue& right);
/// left op right, for "==", "<", "in", ...
bool template_compare(TemplateContext& context, std::string_view op, const TemplateValue& left,
                      const TemplateValue& right);
/// object[key]; undefined if there is none.
TemplateValue template_subscript(TemplateContext& context, const TemplateValue& object, const TemplateValue& key);
/// object.name
TemplateValue template_attribute(TemplateContext& context, const TemplateValue& object, const std::string& name);
/// object[begin:end:step]; null where absent.
TemplateValue template_slice_of(TemplateContext& context, const TemplateValue& object, const TemplateValue* begin,
                                const TemplateValue* end, const TemplateValue* step);
/// Python's format % arguments.
MarkedText template_format(TemplateContext& context, const MarkedText& format,
                           const std::vector<TemplateValue>& values);

}  // namespace megalith
