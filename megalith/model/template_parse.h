// From the text of a chat template to its tree: the grammar of Jinja 3.1, with the loop controls and {% generation %}
// that transformers adds. What needs other files (include, import, extends) is an error when it is reached.
#pragma once

#include <string>
#include <string_view>

#include "megalith/model/template_tree.h"

namespace megalith {

/// UserError "template_name, line 3: found ..., want ..." for what is not a template, or nests too deeply.
TemplateBody template_parse(std::string_view source, const std::string& template_name);

}  // namespace megalith
