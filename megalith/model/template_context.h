// What everything that evaluates a chat template shares: where it is, and what it may still spend. A template comes
// with a model and messages come from strangers, so the time of a rendering is bounded; what it holds counts itself
// (template_memory.h).
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/template_value.h"

namespace megalith {

class TemplateContext {
 public:
  TemplateContext(const std::string& template_name, std::optional<std::time_t> now)
      : now_(now), template_name_(template_name) {}
  ~TemplateContext();
  TemplateContext(const TemplateContext&) = delete;
  TemplateContext& operator=(const TemplateContext&) = delete;

  void at_line(int line) { line_ = line; }
  int line() const { return line_; }
  [[noreturn]] void fail(const std::string& message) const;
  /// Spends steps; an error when there are none left.
  void charge(int64_t steps);
  /// Spends what copying or making `bytes` of text takes.
  void charge_text(size_t bytes);
  /// Spends what making a text of escapes takes: repr() or JSON.
  void charge_escaped(std::string_view text) { charge_characters(text), charge_text(2 * text.size()); }
  /// Spends what going through a text takes, character by character.
  void charge_characters(std::string_view text);
  /// Spends what looking for `what` in `text` takes.
  void charge_search(std::string_view text, std::string_view what);
  /// Spends what walking a value takes: printing or comparing it.
  void charge_walk(const TemplateValue& value) { charge(value.weight()); }

  /// Keeps an object that may come to hold itself until the end, and then clears it.
  void keep(std::shared_ptr<TemplateObject> object) { kept_.push_back(std::move(object)); }

  /// What strftime_now takes for the time; null: the clock.
  const std::optional<std::time_t>& now() const { return now_; }

 private:
  std::optional<std::time_t> now_;
  const std::string& template_name_;
  int line_ = 1;
  int64_t steps_left_ = kMaxSteps;
  std::vector<std::shared_ptr<TemplateObject>> kept_;

  // A step takes about 100 ns, so a hostile template ends within seconds. A thousand messages take some 200,000.
  static constexpr int64_t kMaxSteps = 10'000'000;
};

}  // namespace megalith
