#include "megalith/model/utf8.h"

namespace megalith {

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool in(unsigned char byte, unsigned least, unsigned most) { return byte >= least && byte <= most; }
}  // namespace

// Table 3-7 of the Unicode standard: the second byte's range depends on the first, which shuts out overlong forms,
// surrogates and everything above U+10FFFF.
int utf8_next(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned char first = text[0];
  if (first < 0x80) return 1;
  const int length = in(first, 0xC2, 0xDF) ? 2 : in(first, 0xE0, 0xEF) ? 3 : in(first, 0xF0, 0xF4) ? 4 : 0;
  if (length == 0) return -1;
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= text.size()) return 0;
    if (!in(text[i], i == 1 ? least : 0x80, i == 1 ? most : 0xBF)) return -i;
  }
  return length;
}

char32_t utf8_code_point(std::string_view text) {
  auto tail = [&](int i) { return static_cast<char32_t>(text[i] & 0x3F); };
  const unsigned char first = text[0];
  if (first < 0x80) return first;
  if (first < 0xE0) return (first & 0x1Fu) << 6 | tail(1);
  if (first < 0xF0) return (first & 0x0Fu) << 12 | tail(1) << 6 | tail(2);
  return (first & 0x07u) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
}

size_t utf8_last(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && in(text[begin], 0x80, 0xBF)) --begin;
  return begin;
}

void utf8_append(std::string& text, char32_t c) {
  auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6), add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 0x3F)), add(0x80 | (c >> 6 & 0x3F)), add(0x80 | (c & 0x3F));
  }
}

bool utf8_is_valid(std::string_view text) {
  while (!text.empty()) {
    const int length = utf8_next(text);
    if (length <= 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string utf8_repair(std::string_view text) {
  Utf8Stream stream;
  std::string result = stream.push(text);
  return result + stream.finish();
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string_view rest = held_;
  std::string result;
  result.reserve(rest.size());
  while (int length = utf8_next(rest)) {
    if (length > 0) {
      result += rest.substr(0, length);
    } else {
      result += kReplacement;
      length = -length;
    }
    rest.remove_prefix(length);
  }
  held_ = std::string(rest);
  return result;
}

std::string Utf8Stream::finish() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return unfinished ? std::string(kReplacement) : "";
}

}  // namespace megalith
