#include "megalith/serve/json_scanner.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>

namespace megalith::serve {

namespace {

// As deep as what this server reads (model/json.h).
constexpr size_t kMaxLevels = 64;
// Of a number; a double has up to 1,079.
constexpr size_t kMaxWordBytes = 1100;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.'; }

size_t digits_end(std::string_view word, size_t at) {
  while (at < word.size() && is_digit(word[at])) ++at;
  return at;
}

// -12.5e+3
bool is_json_number(std::string_view word) {
  size_t at = word.starts_with('-');
  const size_t whole = digits_end(word, at);
  if (whole == at || (word[at] == '0' && whole > at + 1)) return false;
  at = whole;
  if (at < word.size() && word[at] == '.') {
    const size_t end = digits_end(word, at + 1);
    if (end == at + 1) return false;
    at = end;
  }
  if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
    ++at;
    if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
    const size_t end = digits_end(word, at);
    if (end == at) return false;
    at = end;
  }
  return at == word.size();
}

std::string escaped_control(char control) {
  switch (control) {
    case '\n': return "\\n";
    case '\t': return "\\t";
    case '\r': return "\\r";
    default: return fmt::format("\\u{:04x}", static_cast<unsigned>(control));
  }
}

}  // namespace

JsonScanner::Step JsonScanner::value_end() {
  if (open_.empty()) return Step::done;
  at_ = At::separator;
  return Step::more;
}

JsonScanner::Step JsonScanner::open(char byte, At next, std::string& out) {
  if (open_.size() >= kMaxLevels) return Step::broken;
  open_ += byte;
  out += byte;
  at_ = next;
  return Step::more;
}

JsonScanner::Step JsonScanner::close(char byte, std::string& out) {
  open_.pop_back();
  out += byte;
  return value_end();
}

JsonScanner::Step JsonScanner::begin_value(char byte, std::string& out) {
  if (byte == '{') return open(byte, At::first_key, out);
  if (byte == '[') return open(byte, At::first_element, out);
  if (byte == '"') {
    out += byte;
    is_key_ = false;
    at_ = At::string;
    return Step::more;
  }
  if (!is_digit(byte) && byte != '-' && byte != 't' && byte != 'f' && byte != 'n') return Step::broken;
  word_ = byte;
  at_ = At::word;
  return Step::more;
}

JsonScanner::Step JsonScanner::in_string(char byte, std::string& out) {
  if (static_cast<unsigned char>(byte) < 0x20) {
    out += escaped_control(byte);
    return Step::more;
  }
  out += byte;
  if (byte == '\\') at_ = At::escape;
  if (byte != '"') return Step::more;
  if (!is_key_) return value_end();
  at_ = At::colon;
  return Step::more;
}

JsonScanner::Step JsonScanner::in_escape(char byte, std::string& out) {
  if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return Step::broken;
  out += byte;
  at_ = byte == 'u' ? At::hex : At::string;
  hex_left_ = 4;
  return Step::more;
}

JsonScanner::Step JsonScanner::behind_value(char byte, std::string& out) {
  const bool is_object = open_.back() == '{';
  if (byte == (is_object ? '}' : ']')) return close(byte, out);
  if (byte != ',') return Step::broken;
  out += byte;
  at_ = is_object ? At::key : At::value;
  return Step::more;
}

JsonScanner::Step JsonScanner::push(char byte, std::string& out) {
  if (at_ == At::string) return in_string(byte, out);
  if (at_ == At::escape) return in_escape(byte, out);
  if (at_ == At::hex) {
    if (!std::isxdigit(static_cast<unsigned char>(byte))) return Step::broken;
    out += byte;
    if (--hex_left_ == 0) at_ = At::string;
    return Step::more;
  }
  if (at_ == At::word) {
    if (is_word_byte(byte)) {
      word_ += byte;
      return word_.size() > kMaxWordBytes ? Step::broken : Step::more;
    }
    if (word_ != "true" && word_ != "false" && word_ != "null" && !is_json_number(word_)) return Step::broken;
    out += word_;
    if (value_end() == Step::done) return Step::done_before;
  }
  if (is_json_space(byte)) {
    out += byte;
    return Step::more;
  }
  switch (at_) {
    case At::first_element: return byte == ']' ? close(byte, out) : begin_value(byte, out);
    case At::value: return begin_value(byte, out);
    case At::first_key:
    case At::key:
      if (byte == '}' && at_ == At::first_key) return close(byte, out);
      if (byte != '"') return Step::broken;
      out += byte;
      is_key_ = true;
      at_ = At::string;
      return Step::more;
    case At::colon:
      if (byte != ':') return Step::broken;
      out += byte;
      at_ = At::value;
      return Step::more;
    default: return behind_value(byte, out);
  }
}

}  // namespace megalith::serve
