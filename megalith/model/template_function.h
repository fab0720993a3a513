// What chat templates find without setting it: Jinja's range, dict, namespace, cycler and joiner, and the two functions
// that transformers adds, raise_exception and strftime_now.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megalith/model/template_context.h"
#include "megalith/model/template_object.h"

namespace megalith {

/// By name.
std::vector<std::pair<std::string, TemplateValue>> template_globals();

/// The one thing that templates can assign to.
class TemplateNamespace : public TemplateObject {
 public:
  explicit TemplateNamespace(const TemplateValue& dict);
  std::string kind_name() const override { return "a namespace"; }
  std::optional<TemplateValue> attribute(std::string_view name) override;
  MarkedText repr() override;
  void clear() override { members_.clear(); }
  /// UserError for a name that the sandbox refuses.
  void set(const std::string& name, TemplateValue value);

 private:
  static void check(std::string_view name);

  std::vector<std::pair<TemplateValue, TemplateValue>> members_;
  std::map<std::string, size_t, std::less<>> index_;  // of strings
  TemplateHeld held_members_;
};

}  // namespace megalith
