#include "megalith/serve/answer_parser.h"

#include <algorithm>
#include <utility>

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

AnswerParser::AnswerParser(const AnswerSyntax& syntax, std::unique_ptr<CallParser> calls, bool begins_in_reasoning)
    : begin_(syntax.think_begin),
      end_(syntax.think_end),
      calls_(std::move(calls)),
      at_(!syntax.splits_reasoning() ? At::rest
          : begins_in_reasoning      ? At::reasoning
                                     : At::start) {}

void AnswerParser::pass(std::string_view content, AnswerPieces& out) {
  if (calls_)
    calls_->push(content, out);
  else
    out.add(Kind::content, content);
}

void AnswerParser::take(char byte, AnswerPieces& out) {
  std::string text;
  if (at_ == At::start) {
    const bool is_found = !search_.push(byte, {begin_}, text).empty();
    if (!is_found && text.empty()) return;
    at_ = is_found ? At::reasoning : At::rest;
    if (is_found)
      search_.take_spaces();
    else
      pass(text + search_.take(), out);
  } else if (at_ == At::reasoning) {
    // Where the prompt has begun it, models begin it once more now and then.
    const std::string_view found = search_.push(byte, {end_, has_text_ ? "" : std::string_view(begin_)}, text);
    if (!std::exchange(has_text_, has_text_ || !text.empty())) text.erase(0, text.find_first_not_of(" \n\t\r"));
    out.add(Kind::reasoning, text);
    if (!found.empty()) search_.take_spaces();
    if (found == end_) at_ = At::behind;
  } else {  // At::behind
    if (is_json_space(byte)) return;
    at_ = At::rest;
    pass({&byte, 1}, out);
  }
}

AnswerPieces AnswerParser::push(std::string_view text) {
  AnswerPieces out;
  for (; !text.empty() && at_ != At::rest; text.remove_prefix(1)) take(text.front(), out);
  if (!text.empty()) pass(text, out);
  return out;
}

AnswerPieces AnswerParser::finish() {
  AnswerPieces out;
  const std::string held = search_.take();
  if (at_ == At::reasoning)
    out.add(Kind::reasoning, has_text_ ? held : held.substr(std::min(held.find_first_not_of(" \n\t\r"), held.size())));
  else
    pass(held, out);
  if (calls_) calls_->finish(out);
  return out;
}

}  // namespace megalith::serve
