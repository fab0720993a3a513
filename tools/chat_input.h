// What a user types into a conversation, apart from terminal and model, so that it can be tested.
#pragma once

#include <optional>
#include <string>

namespace megalith::tools {

/// What a user types, line by line. A message is a line; a line that ends with a backslash goes on in the next; what
/// stands between two lines of three quotes is one message.
class ChatInput {
 public:
  /// A message if the line completes one. UserError if it has become longer than any text may be.
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
