// The text of an answer in pieces: first its reasoning is split off, then calls of tools are found in the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/serve/answer_piece.h"
#include "megalith/serve/call_parser.h"
#include "megalith/serve/marker_search.h"

namespace megalith::serve {

class AnswerParser {
 public:
  /// `calls` is null where no tools were given. `begins_in_reasoning`: the prompt ends with its marker.
  AnswerParser(const AnswerSyntax& syntax, std::unique_ptr<CallParser> calls, bool begins_in_reasoning);

  AnswerPieces push(std::string_view text);
  /// At the end of the answer.
  AnswerPieces finish();
  /// The text so far ends inside of reasoning.
  bool is_in_reasoning() const { return at_ == At::reasoning; }

 private:
  enum class At : uint8_t { start, reasoning, behind, rest };

  void take(char byte, AnswerPieces& out);
  void pass(std::string_view content, AnswerPieces& out);

  std::string begin_, end_;
  std::unique_ptr<CallParser> calls_;
  At at_;
  bool has_text_ = false;  // the reasoning: white space in front of it is none of it
  MarkerSearch search_ = {};
};

}  // namespace megalith::serve
