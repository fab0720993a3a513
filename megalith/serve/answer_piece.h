// What an answer is made of: text, reasoning, and calls of tools, in the order in which the model writes them. Parsers cut
// its text into such pieces while it comes; however it was cut before, the pieces say the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith::serve {

struct AnswerPiece {
  enum class Kind {
    content,
    reasoning,
    call,       // of a tool; `text` is its name
    arguments,  // some more of that call's, as JSON
    call_end,   // they are complete: one JSON object
  };
  Kind kind;
  std::string text = {};

  bool operator==(const AnswerPiece&) const = default;
};

class AnswerPieces {
 public:
  /// Text behind text of its kind joins it; none is no piece.
  void add(AnswerPiece::Kind kind, std::string_view text) {
    if (text.empty() && kind != AnswerPiece::Kind::call_end) return;
    const bool joins = !all.empty() && all.back().kind == kind && kind != AnswerPiece::Kind::call;
    if (joins)
      all.back().text += text;
    else
      all.push_back({kind, std::string(text)});
  }

  std::vector<AnswerPiece> all = {};
};

}  // namespace megalith::serve
