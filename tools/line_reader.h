// What a user types, line by line: at a terminal with arrow keys and the lines of earlier times (libedit), from a pipe
// as it comes.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace megalith::tools {

class LineReader {
 public:
  /// At a terminal, lines are kept in the user's folder under `history_name`, for the next time; where that cannot be
  /// written, only until the end.
  explicit LineReader(const std::string& history_name);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Stdin and stderr are a terminal: prompts are shown.
  bool is_terminal() const { return editor_ != nullptr; }
  /// The next line without its end; nothing at the end of the input. UserError if it is longer than any text may be.
  std::optional<std::string> next(const std::string& prompt);

 private:
  class Editor;
  std::unique_ptr<Editor> editor_;
};

}  // namespace megalith::tools
