// How a model writes what is more than text: calls of tools, and reasoning. Its chat template tells, because it shows the model
// its own earlier calls in the same form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/chat_template.h"
#include "megalith/model/tokenizer.h"

namespace megalith::serve {

/// Under vLLM's names.
enum class CallFormat {
  none,
  hermes,       // <tool_call>{"name": "f", "arguments": {...}}</tool_call>, of Qwen and Hermes
  llama3_json,  // {"name": "f", "parameters": {...}}, also behind <|python_tag|>
  mistral,      // [TOOL_CALLS] [{"name": "f", "arguments": {...}}], or [TOOL_CALLS]f[ARGS]{...}
  qwen3_xml,    // <tool_call><function=f><parameter=x>...</parameter></function></tool_call>, of Qwen3-Coder
};

/// Under llama-server's names.
enum class ReasoningFormat {
  none,      // it stays in the content
  deepseek,  // it is no part of the content
  automatic  // likewise, where the chat template knows of it
};

struct AnswerSyntax {
  CallFormat calls = CallFormat::none;
  std::string think_begin = {}, think_end = {};  // "": reasoning stays in the content

  bool splits_reasoning() const { return !think_begin.empty(); }
};

/// Names of formats for --tool-call-parser and --reasoning-format; nothing for another one.
std::optional<CallFormat> call_format(std::string_view name);
std::optional<ReasoningFormat> reasoning_format(std::string_view name);
const std::vector<std::string>& call_format_names();
const std::vector<std::string>& reasoning_format_names();

/// `source` is the chat template's text; `calls` is the format if that is not to be found out.
AnswerSyntax answer_syntax(std::string_view source, std::optional<CallFormat> calls, ReasoningFormat reasoning);
/// What stands around calls and reasoning in answers.
std::vector<std::string> answer_markers(const AnswerSyntax& syntax);
/// What stands around calls and their results in prompts.
std::vector<std::string> call_markers(const AnswerSyntax& syntax);
/// Those of `names` that are tokens of their own; sorted.
std::vector<int> marker_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& names);

}  // namespace megalith::serve
