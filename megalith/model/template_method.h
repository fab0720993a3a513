// The methods of Python's own types: strings (template_method_text.cpp), numbers, lists, tuples and dictionaries.
#pragma once

#include <span>
#include <string_view>

#include "megalith/model/template_call.h"
#include "megalith/model/template_value.h"

namespace megalith {

struct TemplateMethodRow {
  enum class Access {
    method,
    property,
    markup,      // a method that makes Markup of Markup
    changes,     // Python has it, but it changes the object: the sandbox hides it
    unsupported  // Python has it, and it has no use here: an error when it is called
  };

  std::string_view name;
  Access access;
  TemplateValue (*method)(const TemplateValue& object, const TemplateCall& call) = nullptr;
};

std::span<const TemplateMethodRow> template_text_methods();
std::span<const TemplateMethodRow> template_markup_methods();  // those that only Markup has
/// dict.fromkeys(keys, value)
TemplateValue template_dict_from_keys(const TemplateCall& call);

}  // namespace megalith
