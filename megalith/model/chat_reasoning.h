// The names under which a message carries what an assistant thought. Templates read "reasoning_content", some read
// "thinking"; programs also write "reasoning". As in transformers, a message with one of them gets the first two.
#pragma once

#include "megalith/model/template_value.h"

namespace megalith {

/// `messages`, a list, with those names filled in; UserError if one of them is no dictionary.
TemplateValue chat_alias_reasoning(const TemplateValue& messages);

}  // namespace megalith
