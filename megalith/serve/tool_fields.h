// The members of a request that are about tools: those that may be called, and earlier calls of them.
#pragma once

#include <vector>

#include "megalith/serve/fields.h"
#include "megalith/serve/generation_request.h"

namespace megalith::serve {

/// "tools", "tool_choice" and "parallel_tool_calls". ApiError for what this server cannot do, and for a forced call of nothing.
void read_tools(const Fields& fields, GenerationRequest& request);
/// "tool_calls" of an assistant's message.
std::vector<ToolCall> read_tool_calls(const JsonValue& message);
/// An item of /v1/responses.
ToolCall read_function_call(const JsonValue& item);

}  // namespace megalith::serve
