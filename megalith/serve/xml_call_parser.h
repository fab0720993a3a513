// Calls as Qwen3-Coder writes them:
//
//   <tool_call>
//   <function=weather>
//   <parameter=city>
//   Paris
//   </parameter>
//   </function>
//   </tool_call>
//
// Values stand there as they are, so the tool's schema says which of them are strings. Those are passed on while they come.
#pragma once

#include <cstdint>

#include "megalith/serve/call_parser.h"
#include "megalith/serve/marker_search.h"

namespace megalith::serve {

class XmlCallParser : public CallParser {
 public:
  explicit XmlCallParser(const std::vector<CallableTool>& tools) : tools_(tools) {}

  void push(std::string_view text, AnswerPieces& out) override;
  void finish(AnswerPieces& out) override;

 private:
  enum class At : uint8_t { text, opened, name, function, key, value, between };

  void take(char byte, AnswerPieces& out);
  void in_text(char byte, AnswerPieces& out);
  void in_opened(char byte, AnswerPieces& out);
  void in_name(char byte, AnswerPieces& out);
  void in_function(char byte, AnswerPieces& out);
  void in_key(char byte, AnswerPieces& out);
  void in_value(char byte, AnswerPieces& out);
  void begin_value(AnswerPieces& out);
  void end_value(AnswerPieces& out);
  void end_call(AnswerPieces& out);
  void give_up(AnswerPieces& out);

  const std::vector<CallableTool>& tools_;
  At at_ = At::text;
  MarkerSearch search_ = {};
  std::string raw_ = {};    // since the marker, until the call is announced
  std::string name_ = {};   // of the tool, then of the parameter
  std::string value_ = {};  // that is no string, or its first byte is still to come
  const CallableTool* tool_ = nullptr;
  bool is_string_ = true, is_first_byte_ = true;
  int num_parameters_ = 0;
};

}  // namespace megalith::serve
