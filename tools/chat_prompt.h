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
  std::string template_file;  // a template in place of the model's own
  bool no_template = false;   // plain text, whatever the model has
  std::string system;         // the system prompt; "": nothing
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
  /// The token that the template writes behind an answer ("<|im_end|>"), which therefore ends one; none if there is no
  /// template, or if it marks no end. Models of one family share config files but not always this token.
  std::optional<int> turn_end(const Tokenizer& tokenizer) const;

 private:
  std::vector<ChatMessage> with_system(const std::vector<ChatMessage>& messages) const;

  std::optional<ChatTemplate> template_;
  std::string system_;
};

}  // namespace megalith::tools
