// Finds calls of tools in what a model writes, while it writes. One machine does it for the formats that are JSON between
// markers (json_call_parser.h), another one for XML (xml_call_parser.h).
//
// What might be the beginning of a marker or of a call is held back until it is known; if it is none, it is content, as it
// stands. A call that breaks behind the point where it was announced keeps the arguments that it had, and has no end.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/serve/answer_piece.h"
#include "megalith/serve/answer_syntax.h"

namespace megalith::serve {

/// A tool as far as an answer's text depends on it.
struct CallableTool {
  std::string name;
  std::map<std::string, std::string> types = {};  // of parameters, as its schema has them: "string"; "" for several
};

class CallParser {
 public:
  virtual ~CallParser() = default;
  virtual void push(std::string_view text, AnswerPieces& out) = 0;
  /// At the end of the answer.
  virtual void finish(AnswerPieces& out) = 0;
};

/// Null for CallFormat::none. `tools` must outlive it.
std::unique_ptr<CallParser> make_call_parser(CallFormat format, const std::vector<CallableTool>& tools);

}  // namespace megalith::serve
