#include "megalith/serve/xml_call_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "megalith/base/json_quote.h"
#include "megalith/serve/call_object.h"
#include "megalith/serve/json_scanner.h"

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr size_t kMaxKeyBytes = 256;

// Byte by byte, because a piece may end inside a character.
std::string escaped(std::string_view text) {
  std::string json;
  for (const char byte : text) {
    if (byte == '"' || byte == '\\')
      json += '\\', json += byte;
    else if (byte == '\n')
      json += "\\n";
    else if (static_cast<unsigned char>(byte) < 0x20)
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
    else
      json += byte;
  }
  return json;
}

bool is_whole_json(std::string_view text) {
  JsonScanner scanner;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.push(text[i], out);
    if (step == JsonScanner::Step::done) return i + 1 == text.size();
    if (step != JsonScanner::Step::more) return false;
  }
  return scanner.push(' ', out) == JsonScanner::Step::done_before;
}

// A value that the schema calls no string; some models write it as Python does.
std::string json_of(const std::string& value) {
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value == "None") return "null";
  return is_whole_json(value) ? value : json_quote(value);
}

}  // namespace

void XmlCallParser::push(std::string_view text, AnswerPieces& out) {
  for (const char byte : text) take(byte, out);
}

void XmlCallParser::take(char byte, AnswerPieces& out) {
  switch (at_) {
    case At::text:
    case At::between: return in_text(byte, out);
    case At::opened: return in_opened(byte, out);
    case At::name: return in_name(byte, out);
    case At::function: return in_function(byte, out);
    case At::key: return in_key(byte, out);
    case At::value: return in_value(byte, out);
  }
}

void XmlCallParser::give_up(AnswerPieces& out) {
  out.add(Kind::content, std::exchange(raw_, {}));
  at_ = At::text;
}

void XmlCallParser::in_text(char byte, AnswerPieces& out) {
  std::string text;
  const std::string_view found = search_.push(byte, {kCall, kFunction, kCallEnd}, text);
  if (at_ == At::between && !text.empty()) {
    text.erase(0, text.find_first_not_of(" \n\t\r"));
    at_ = At::text;
  }
  out.add(Kind::content, text);
  if (found.empty()) return;
  raw_ = search_.take_spaces() + std::string(found);
  if (found == kCallEnd) return at_ == At::between ? raw_.clear() : give_up(out);
  name_.clear();
  at_ = found == kCall ? At::opened : At::name;
}

void XmlCallParser::in_opened(char byte, AnswerPieces& out) {
  std::string text;
  const std::string_view found = search_.push(byte, {kFunction, kCall}, text);
  raw_ += text;
  if (!text.empty()) return give_up(out);  // what is held may still begin a marker
  if (found.empty()) return;
  if (found == kCall) out.add(Kind::content, std::exchange(raw_, {}));
  raw_ += search_.take_spaces() + std::string(found);
  if (found == kFunction) at_ = At::name;
}

void XmlCallParser::in_name(char byte, AnswerPieces& out) {
  if (byte != '>' && is_tool_name(name_ + byte)) {
    raw_ += byte;
    name_ += byte;
    return;
  }
  if (byte != '>' || name_.empty()) {
    give_up(out);
    return in_text(byte, out);
  }
  raw_.clear();
  const auto found = std::ranges::find(tools_, name_, &CallableTool::name);
  tool_ = found == tools_.end() ? nullptr : &*found;
  num_parameters_ = 0;
  out.add(Kind::call, name_);
  at_ = At::function;
}

void XmlCallParser::in_function(char byte, AnswerPieces& out) {
  std::string text;
  const std::string_view found = search_.push(byte, {kParameter, kFunctionEnd, kCallEnd}, text);
  if (!text.empty()) {
    at_ = At::text;
    out.add(Kind::content, text.substr(text.find_first_not_of(" \n\t\r")));
    return;
  }
  if (found.empty()) return;
  search_.take_spaces();
  if (found != kParameter) return end_call(out);
  name_.clear();
  at_ = At::key;
}

void XmlCallParser::end_call(AnswerPieces& out) {
  out.add(Kind::arguments, num_parameters_ ? "}" : "{}");
  out.add(Kind::call_end, "");
  at_ = At::between;
}

void XmlCallParser::in_key(char byte, AnswerPieces& out) {
  if (byte == '>' && !name_.empty()) return begin_value(out);
  if (byte == '>' || byte == '<' || byte == '\n' || name_.size() >= kMaxKeyBytes) {
    at_ = At::text;
    return in_text(byte, out);
  }
  name_ += byte;
}

void XmlCallParser::begin_value(AnswerPieces& out) {
  out.add(Kind::arguments, fmt::format("{}\"{}\": ", num_parameters_++ ? ", " : "{", escaped(name_)));
  is_string_ = true;
  if (tool_)
    if (const auto type = tool_->types.find(name_); type != tool_->types.end()) is_string_ = type->second == "string";
  if (is_string_) out.add(Kind::arguments, "\"");
  is_first_byte_ = true;
  value_.clear();
  at_ = At::value;
}

void XmlCallParser::in_value(char byte, AnswerPieces& out) {
  // The line ends behind the tag and in front of the next one are the tags'.
  if (std::exchange(is_first_byte_, false) && byte == '\n') return;
  std::string text;
  const bool is_found = !search_.push(byte, {kParameterEnd}, text).empty();
  if (is_found) {
    text += search_.take_spaces();
    if (text.ends_with('\n')) text.pop_back();
  }
  if (is_string_)
    out.add(Kind::arguments, escaped(text));
  else
    value_ += text;
  if (is_found) end_value(out);
}

void XmlCallParser::end_value(AnswerPieces& out) {
  out.add(Kind::arguments, is_string_ ? "\"" : json_of(value_));
  at_ = At::function;
}

void XmlCallParser::finish(AnswerPieces& out) {
  const bool is_in_call = at_ == At::function || at_ == At::key || at_ == At::value;
  const std::string held = search_.take();
  out.add(Kind::content, std::exchange(raw_, {}));
  if (!is_in_call && at_ != At::between) out.add(Kind::content, held);
  at_ = At::text;
}

}  // namespace megalith::serve
