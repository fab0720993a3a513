#include "megalith/serve/json_call_parser.h"

#include <utility>

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

constexpr size_t kMaxHeaderBytes = 512;
constexpr std::string_view kCallId = "[CALL_ID]", kArgs = "[ARGS]";

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text;
}

// Of name[CALL_ID]id[ARGS], of which all but the name may be missing; "" if it is something else.
std::string_view name_of_header(std::string_view header) {
  header = without_spaces(header);
  if (header.ends_with(kArgs)) header = without_spaces(header.substr(0, header.size() - kArgs.size()));
  if (const size_t id = header.find(kCallId); id != std::string_view::npos) {
    if (!is_tool_name(without_spaces(header.substr(id + kCallId.size())))) return "";
    header = without_spaces(header.substr(0, id));
  }
  return is_tool_name(header) ? header : "";
}

}  // namespace

JsonCallParser::JsonCallParser(const JsonCallSyntax& syntax, const std::vector<CallableTool>& tools)
    : syntax_(syntax), at_(syntax.may_be_bare ? At::start : At::content) {
  for (const CallableTool& tool : tools) names_.push_back(tool.name);
}

void JsonCallParser::push(std::string_view text, AnswerPieces& out) {
  for (const char byte : text) take(byte, out);
}

void JsonCallParser::take(char byte, AnswerPieces& out) {
  switch (at_) {
    case At::start:
      if (is_json_space(byte)) return in_text(byte, out);
      at_ = At::content;
      return byte == '{' ? begin_object(byte, true, out) : in_text(byte, out);
    case At::content: return in_text(byte, out);
    case At::opened: return in_opened(byte, out);
    case At::list: return in_list(byte, out);
    case At::header: return in_header(byte, out);
    case At::object: return in_object(byte, out);
    case At::arguments: return in_arguments(byte, out);
    case At::between: return behind_call(byte, out);
  }
}

void JsonCallParser::in_text(char byte, AnswerPieces& out) {
  std::string text;
  const std::string_view found = search_.push(byte, {syntax_.begin, syntax_.end}, text);
  out.add(Kind::content, text);
  if (!found.empty()) marker(found, search_.take_spaces(), out);
}

void JsonCallParser::marker(std::string_view found, const std::string& spaces, AnswerPieces& out) {
  if (found == syntax_.begin) {
    raw_ = spaces + std::string(found);
    at_ = At::opened;
  } else if (!std::exchange(wants_end_, false)) {
    out.add(Kind::content, spaces + std::string(found));
  }
}

void JsonCallParser::give_up(char byte, AnswerPieces& out) {
  out.add(Kind::content, std::exchange(raw_, {}));
  at_ = At::content;
  is_in_list_ = false;
  in_text(byte, out);
}

void JsonCallParser::begin_object(char byte, bool is_bare, AnswerPieces& out) {
  if (is_bare) raw_ = search_.take();
  object_ = CallObject(is_bare ? CallObjectRules{&names_, true} : CallObjectRules{});
  at_ = At::object;
  in_object(byte, out);
}

void JsonCallParser::in_opened(char byte, AnswerPieces& out) {
  if (byte == '{') return begin_object(byte, false, out);
  const bool begins_header = syntax_.has_headers && is_tool_name({&byte, 1});
  if (byte == '[' && syntax_.has_lists) {
    is_in_list_ = true;
    at_ = At::list;
  } else if (begins_header) {
    scanner_ = {};
    at_ = At::header;
  } else if (!is_json_space(byte)) {
    return give_up(byte, out);
  }
  raw_ += byte;
}

void JsonCallParser::in_list(char byte, AnswerPieces& out) {
  if (byte == '{') return begin_object(byte, false, out);
  if (byte == ']') {
    is_in_list_ = false;
    raw_.clear();
    at_ = At::between;
  } else if (is_json_space(byte)) {
    raw_ += byte;
  } else {
    give_up(byte, out);
  }
}

void JsonCallParser::in_header(char byte, AnswerPieces& out) {
  if (byte == '{') {
    const size_t marker_end = raw_.find(syntax_.begin) + syntax_.begin.size();
    const std::string name(name_of_header(std::string_view(raw_).substr(marker_end)));
    if (name.empty()) return give_up(byte, out);
    raw_.clear();
    out.add(Kind::call, name);
    at_ = At::arguments;
    return in_arguments(byte, out);
  }
  const bool fits = is_tool_name({&byte, 1}) || is_json_space(byte) || byte == '[' || byte == ']';
  if (!fits || raw_.size() > kMaxHeaderBytes) return give_up(byte, out);
  raw_ += byte;
}

void JsonCallParser::in_object(char byte, AnswerPieces& out) {
  const CallObject::Step step = object_.push(byte, out);
  if (object_.has_begun()) {
    raw_.clear();
    wants_end_ = !syntax_.end.empty();
  }
  if (step == CallObject::Step::more) {
    if (!object_.has_begun()) raw_ += byte;
  } else if (step == CallObject::Step::done) {
    at_ = At::between;
  } else if (object_.lacks_only_brace()) {
    out.add(Kind::call_end, "");
    at_ = At::between;
    behind_call(byte, out);
  } else {
    give_up(byte, out);
  }
}

void JsonCallParser::in_arguments(char byte, AnswerPieces& out) {
  std::string arguments;
  const JsonScanner::Step step = scanner_.push(byte, arguments);
  out.add(Kind::arguments, arguments);
  if (step == JsonScanner::Step::broken) return give_up(byte, out);
  if (step == JsonScanner::Step::more) return;
  out.add(Kind::call_end, "");
  at_ = At::between;
}

void JsonCallParser::behind_call(char byte, AnswerPieces& out) {
  if (!search_.is_empty()) {
    std::string text;
    const std::string_view found = search_.push(byte, {syntax_.begin, syntax_.end}, text);
    if (!text.empty()) at_ = At::content;
    out.add(Kind::content, text);
    if (!found.empty()) marker(found, search_.take_spaces(), out);
    return;
  }
  if (is_json_space(byte)) return;
  if (is_in_list_ && (byte == ',' || byte == ']')) {
    is_in_list_ = byte == ',';
    if (is_in_list_) at_ = At::list;
    return;
  }
  if (syntax_.between.find(byte) != std::string_view::npos) return;
  const bool may_be_object = byte == '{' && !syntax_.has_lists;
  if (may_be_object) return begin_object(byte, syntax_.may_be_bare, out);
  is_in_list_ = false;
  std::string text;
  search_.push(byte, {syntax_.begin, syntax_.end}, text);
  if (!text.empty()) at_ = At::content;
  out.add(Kind::content, text);
}

void JsonCallParser::finish(AnswerPieces& out) {
  if (at_ == At::object && object_.lacks_only_brace()) out.add(Kind::call_end, "");
  out.add(Kind::content, std::exchange(raw_, {}));
  const std::string held = search_.take();
  const bool is_cut_end = at_ == At::between && wants_end_ && syntax_.end.starts_with(held);
  if (!is_cut_end) out.add(Kind::content, held);
  at_ = At::content;
}

}  // namespace megalith::serve
