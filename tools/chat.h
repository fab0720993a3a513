// A conversation, apart from terminal and model, so that it can be tested: what a line of input means, and the text
// that the model goes on from.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megalith::tools {

struct ChatMessage {
  std::string role;  // "user" or "assistant"
  std::string content;
};

/// The text of the conversation so far, for the model to go on from. The one place that knows how a model wants it: one
/// without a template goes on from plain text.
std::string chat_text(const std::vector<ChatMessage>& messages);

/// What a user types, line by line. A message is a line; a line that ends with a backslash goes on in the next; what
/// stands between two lines of three quotes is one message.
class ChatInput {
 public:
  /// A message if the line completes one.
  std::optional<std::string> line(std::string text);
  /// In the middle of a message of several lines.
  bool is_open() const { return quoted_ || !held_.empty(); }
  /// At the end of the input: what is left of a message, if anything.
  std::optional<std::string> finish();

 private:
  std::string held_;
  bool quoted_ = false;
};

}  // namespace megalith::tools
