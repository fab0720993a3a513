// The filters and tests of chat templates: all of Jinja's, and transformers' tojson. What Jinja makes a generator of
// (map, select, batch) is one here: it is worked out when it is gone through, and not before.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/template_call.h"
#include "megalith/model/template_value.h"

namespace megalith {

/// value | name(call)
TemplateValue template_filter(const std::string& name, const TemplateValue& value, const TemplateCall& call);
/// value is name(call)
bool template_test(const std::string& name, const TemplateValue& value, const TemplateCall& call);
/// Whether there is one of this name.
bool template_has_filter(std::string_view name);
bool template_has_test(std::string_view name);
/// The error for a name that there is not, with those that there are.
std::string template_no_filter(std::string_view name);
std::string template_no_test(std::string_view name);

struct TemplateFilterRow {
  std::string_view name;
  TemplateValue (*filter)(const TemplateValue& value, const TemplateCall& call);
};
std::span<const TemplateFilterRow> template_text_filters();
std::span<const TemplateFilterRow> template_html_filters();
std::span<const TemplateFilterRow> template_list_filters();
std::span<const TemplateFilterRow> template_value_filters();

/// How map, sort and the like name attributes: "name", "function.name", "items.0", 0.
class TemplatePath {
 public:
  TemplatePath(TemplateContext& context, const TemplateValue* attribute);
  /// What `value` has there, "default" where that is undefined.
  TemplateValue of(TemplateContext& context, TemplateValue value, const TemplateValue* absent = nullptr) const;

 private:
  std::vector<TemplateValue> parts_;
};

/// pprint.pformat(value)
MarkedText template_pretty(TemplateContext& context, const TemplateValue& value);

}  // namespace megalith
