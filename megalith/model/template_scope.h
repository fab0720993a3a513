// What Jinja finds out about names before it runs a template: which of them a scope sets without having looked outside
// (they are undefined until then, even if the prompt has a variable of that name), whether a loop speaks of "loop" and
// a macro of its caller; and which filters and tests are not there, which is an error unless it is in a condition.
#pragma once

#include <string>

#include "megalith/model/template_tree.h"

namespace megalith {

/// UserError naming the line of a filter or test that there is not.
void template_resolve(TemplateBody& body, const std::string& template_name);

}  // namespace megalith
