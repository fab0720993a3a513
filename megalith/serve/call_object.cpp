#include "megalith/serve/call_object.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/model/json.h"

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

// OpenAI has 64; names of MCP servers in front make longer ones.
constexpr size_t kMaxNameBytes = 256;

bool is_name_byte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80 ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

// What a string in JSON says; nothing if it is not sound.
std::optional<std::string> string_of_json(const std::string& json) {
  try {
    return JsonFile::parse(json, "a string").root().string();
  } catch (const UserError&) { return std::nullopt; }
}

bool is_object_json(const std::string& json) {
  try {
    return JsonFile::parse(json, "arguments").root().is_object();
  } catch (const UserError&) { return false; }
}

}  // namespace

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_name_byte);
}

void CallObject::begin_call(AnswerPieces& out) {
  if (has_begun_ || name_.empty() || !has_arguments_) return;
  has_begun_ = true;
  out.add(Kind::call, name_);
}

void CallObject::pass_arguments(AnswerPieces& out) {
  begin_call(out);
  if (has_begun_) out.add(Kind::arguments, std::exchange(arguments_, {}));
}

CallObject::Step CallObject::key_end() {
  const std::optional<std::string> key = string_of_json(text_);
  if (!key) return Step::broken;
  member_ = *key == "name"                                ? Member::name
            : *key == "arguments" || *key == "parameters" ? Member::arguments
                                                          : Member::other;
  const bool stands_twice =
      (member_ == Member::name && !name_.empty()) || (member_ == Member::arguments && has_arguments_);
  const bool is_invented = member_ == Member::other && rules_.is_exact && *key != "type" && *key != "id";
  if (stands_twice || is_invented) return Step::broken;
  at_ = At::colon;
  return Step::more;
}

CallObject::Step CallObject::begin_value(char byte, AnswerPieces& out) {
  if (member_ == Member::name && byte != '"') return Step::broken;
  if (member_ == Member::arguments && byte != '{' && byte != '"' && byte != 'n') return Step::broken;
  is_streamed_ = member_ == Member::arguments && byte == '{';
  has_arguments_ |= is_streamed_;
  scanner_ = {};
  text_.clear();
  at_ = At::value;
  return in_value(byte, out);
}

CallObject::Step CallObject::in_value(char byte, AnswerPieces& out) {
  const bool is_name = member_ == Member::name;
  if (is_name && !text_.empty() && byte != '"' && !is_name_byte(byte)) return Step::broken;
  const JsonScanner::Step step = scanner_.push(byte, is_streamed_ ? arguments_ : text_);
  if (step == JsonScanner::Step::broken || (is_name && text_.size() > kMaxNameBytes + 2)) return Step::broken;
  if (is_streamed_) pass_arguments(out);
  if (step == JsonScanner::Step::more) return Step::more;
  const Step ended = value_end(out);
  return step == JsonScanner::Step::done_before && ended == Step::more ? push(byte, out) : ended;
}

CallObject::Step CallObject::value_end(AnswerPieces& out) {
  at_ = At::separator;
  if (member_ == Member::name) {
    name_ = text_.substr(1, text_.size() - 2);  // has nothing that is escaped
    if (!is_tool_name(name_)) return Step::broken;
    if (rules_.names && std::ranges::find(*rules_.names, name_) == rules_.names->end()) return Step::broken;
    pass_arguments(out);
  }
  if (member_ == Member::arguments && !is_streamed_) {
    const std::optional<std::string> inner = text_ == "null" ? "{}" : string_of_json(text_);
    if (!inner || !is_object_json(*inner)) return Step::broken;
    arguments_ = *inner;
    has_arguments_ = true;
    pass_arguments(out);
  }
  return Step::more;
}

CallObject::Step CallObject::object_end(AnswerPieces& out) {
  if (name_.empty() || (!has_arguments_ && rules_.is_exact)) return Step::broken;
  if (!std::exchange(has_arguments_, true)) arguments_ = "{}";
  pass_arguments(out);
  out.add(Kind::call_end, "");
  return Step::done;
}

CallObject::Step CallObject::push(char byte, AnswerPieces& out) {
  if (at_ == At::value) return in_value(byte, out);
  if (at_ == At::key) {
    const JsonScanner::Step step = scanner_.push(byte, text_);
    if (step == JsonScanner::Step::broken) return Step::broken;
    return step == JsonScanner::Step::done ? key_end() : Step::more;
  }
  if (is_json_space(byte)) return Step::more;
  switch (at_) {
    case At::open: at_ = At::first_key; return byte == '{' ? Step::more : Step::broken;
    case At::first_key:
    case At::key_begin:
      if (byte == '}' && at_ == At::first_key) return object_end(out);
      if (byte != '"') return Step::broken;
      scanner_ = {};
      text_.clear();
      at_ = At::key;
      return push(byte, out);
    case At::colon: at_ = At::value_begin; return byte == ':' ? Step::more : Step::broken;
    case At::value_begin: return begin_value(byte, out);
    default:  // At::separator
      if (byte == '}') return object_end(out);
      if (byte != ',') return Step::broken;
      at_ = At::key_begin;
      return Step::more;
  }
}

}  // namespace megalith::serve
