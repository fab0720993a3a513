// How a model wants a conversation: by its chat template, or, if it has none, as plain text to go on from. The one
// place that knows; the command only says who said what.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megalith/model/chat_template.h"
#include "megalith/model/tokenizer.h"

namespace megalith::tools {

struct ChatPromptOptions {
  std::string template_name;     // one of the folder's templates, or a file with one; "": the folder's own
  bool no_template = false;      // plain text, whatever the model has
  std::string system;            // the system prompt; "": nothing
  std::string variables;         // for the template: a JSON object; "": none
  std::string tools_file;        // with a JSON list that the template is given; "": none
  std::optional<bool> thinking;  // the variable "enable_thinking", which templates of reasoning models look at
};

/// Tokens that stand between messages.
struct TurnTokens {
  std::vector<int> ends;     // behind an answer: they end one
  std::vector<int> markers;  // all of them: what users write never becomes one
};

class ChatPrompt {
 public:
  /// Reads the template of `folder`, and tries it on a first message: UserError naming the line that is not understood,
  /// or what the template refuses (some know no system prompt).
  ChatPrompt(const std::string& folder, const ChatPromptOptions& options);

  /// False: the model goes on from plain text.
  bool has_template() const { return template_.has_value(); }
  /// What the model shall go on from, and of each part whether the template wrote it.
  std::vector<TextSegment> render(const std::vector<ChatMessage>& messages) const;
  /// What the template writes behind an answer ("<|im_end|>"), and around all messages, as far as the tokenizer's files
  /// list these as tokens, special or not. Models of one family share config files but not always these tokens.
  TurnTokens turn_tokens(const Tokenizer& tokenizer) const;

 private:
  void read_options(const ChatPromptOptions& options);
  std::vector<TextSegment> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const;

  std::optional<ChatTemplate> template_;
  ChatOptions options_;
  std::string system_;
};

}  // namespace megalith::tools
