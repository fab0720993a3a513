// What a client sends, as chat templates see it: all strings in it are a stranger's, so none becomes a special token.
#pragma once

#include <string>

#include "megalith/model/json.h"
#include "megalith/model/template_value.h"

namespace megalith::serve {

TemplateValue user_text(const std::string& text);
/// Members in the order in which the client has them.
TemplateValue user_value(const JsonValue& value);

}  // namespace megalith::serve
