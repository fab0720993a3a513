// Calls that are JSON objects, in the forms of Hermes and Qwen, Llama 3 and Mistral. What differs between them is a table.
//
// Tolerated, because models write it: a missing end marker, a brace too few or too many behind complete arguments, objects
// in a row, and line ends in strings.
#pragma once

#include <cstdint>
#include <optional>

#include "megalith/serve/call_object.h"
#include "megalith/serve/call_parser.h"
#include "megalith/serve/marker_search.h"

namespace megalith::serve {

struct JsonCallSyntax {
  std::string_view begin, end;  // markers; no end: ""
  std::string_view between;     // bytes behind an object that mean nothing
  bool has_lists = false;       // [{...}, {...}]
  bool has_headers = false;     // name[ARGS]{...}
  bool may_be_bare = false;     // an answer that begins with an object of one of the tools' names is a call, too
};

class JsonCallParser : public CallParser {
 public:
  JsonCallParser(const JsonCallSyntax& syntax, const std::vector<CallableTool>& tools);

  void push(std::string_view text, AnswerPieces& out) override;
  void finish(AnswerPieces& out) override;

 private:
  enum class At : uint8_t { start, content, opened, list, header, object, arguments, between };

  void take(char byte, AnswerPieces& out);
  void in_text(char byte, AnswerPieces& out);
  void in_opened(char byte, AnswerPieces& out);
  void in_list(char byte, AnswerPieces& out);
  void in_header(char byte, AnswerPieces& out);
  void in_object(char byte, AnswerPieces& out);
  void in_arguments(char byte, AnswerPieces& out);
  void behind_call(char byte, AnswerPieces& out);
  void begin_object(char byte, bool is_bare, AnswerPieces& out);
  void marker(std::string_view found, const std::string& spaces, AnswerPieces& out);
  /// It is no call: what was held is content, and so may be `byte`.
  void give_up(char byte, AnswerPieces& out);

  JsonCallSyntax syntax_;
  std::vector<std::string> names_ = {};
  At at_;
  MarkerSearch search_ = {};
  std::string raw_ = {};  // since the marker, or the brace
  CallObject object_;
  JsonScanner scanner_ = {};
  bool is_in_list_ = false;
  bool wants_end_ = false;  // there was a call, and its end marker is still to come
};

}  // namespace megalith::serve
