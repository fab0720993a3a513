// /tokenize and /detokenize, in the words of vLLM ({"prompt"} or {"messages"}, {"tokens"}) and of llama-server ({"content"},
// {"tokens"}). An answer has the members of both.
#pragma once

#include <string>
#include <string_view>

#include "megalith/serve/fields.h"
#include "megalith/serve/served_model.h"

namespace megalith::serve {

/// The answer's body; ApiError for a request that is not understood.
std::string tokenize(const ServedModel& model, std::string_view body);
std::string detokenize(const ServedModel& model, std::string_view body);
/// Of a request of /v1/chat/completions: its prompt, and how many tokens that has. Both as llama-server has them.
std::string apply_template(const ServedModel& model, std::string_view body);
std::string count_input_tokens(const ServedModel& model, std::string_view body);
/// The members that they look for.
MemberFacts tokenize_members();
MemberFacts detokenize_members();

}  // namespace megalith::serve
