// Operators of templates, as Python and Jinja's sandbox have them: arithmetic, comparison, subscripts, attributes.
#pragma once

#include <string>
#include <string_view>

#include "megalith/model/template_context.h"
#include "megalith/model/template_value.h"

namespace megalith {

/// left op right, for arithmetic; "%" formats strings.
TemplateValue template_binary(TemplateContext& context, std::string_view op, const TemplateValue& left,
                              const TemplateValue& right);
/// op value, for "+" and "-".
TemplateValue template_unary(TemplateContext& context, std::string_view op, const TemplateValue& value);
/// left op right, for "==", "<", "in", ...
bool template_compare(TemplateContext& context, std::string_view op, const TemplateValue& left,
                      const TemplateValue& right);
/// object[key]: the element, else for a string the attribute of that name, else undefined.
TemplateValue template_subscript(TemplateContext& context, const TemplateValue& object, const TemplateValue& key);
/// object.name: the attribute, else the element of that key, else undefined.
TemplateValue template_attribute(TemplateContext& context, const TemplateValue& object, std::string_view name);
/// object[begin:end:step]; null where absent.
TemplateValue template_slice_of(TemplateContext& context, const TemplateValue& object, const TemplateValue* begin,
                                const TemplateValue* end, const TemplateValue* step);
/// object[key] without any of Jinja's tolerance; null if there is none.
std::optional<TemplateValue> template_item(TemplateContext& context, const TemplateValue& object,
                                           const TemplateValue& key);
/// object.name of Python's own, methods included; null if there is none. What the sandbox hides is undefined.
std::optional<TemplateValue> template_own_attribute(TemplateContext& context, const TemplateValue& object,
                                                    std::string_view name);

}  // namespace megalith
