// Runs the tree of a chat template. Scopes are as Jinja's: a loop's body, a macro and a with block have their own, an
// if has not; what they set ends with them, so templates carry values out of loops in namespaces.
//
// Steps, the length of every text, and how deep calls nest are bounded; whatever goes wrong is a UserError that names
// the template and the line.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megalith/model/marked_text.h"
#include "megalith/model/template_tree.h"

namespace megalith {

/// The text that `body` prints, with the marks of what users wrote. `now`: what strftime_now takes for the time.
MarkedText template_render(const TemplateBody& body, const std::string& template_name,
                           std::vector<std::pair<std::string, TemplateValue>> variables,
                           std::optional<std::time_t> now = std::nullopt);

}  // namespace megalith
