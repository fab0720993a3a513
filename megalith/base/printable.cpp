#include "megalith/base/printable.h"

#include <fmt/format.h>
#include <utf8proc.h>

namespace megalith {

namespace {

// Embeddings, overrides and isolates change the order in which what follows is shown; marks of direction do not.
bool reverses(utf8proc_int32_t c) { return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069); }

bool is_control(utf8proc_int32_t c) {
  const auto category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

std::string escaped(std::string_view text, bool is_line) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t c = 0;
    const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const utf8proc_ssize_t length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &c);
    if (length <= 0) {
      result += fmt::format("\\x{:02x}", bytes[0]);
      text.remove_prefix(1);
      continue;
    }
    if (c == '\n' && is_line)
      result += "\\n";
    else if (c == '\n' || c == '\t' || (!is_control(c) && !reverses(c)))
      result += text.substr(0, static_cast<size_t>(length));
    else
      result += c < 0x100 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{:04x}", c);
    text.remove_prefix(static_cast<size_t>(length));
  }
  return result;
}

bool is_inside_character(std::string_view text, size_t at) { return at < text.size() && (text[at] & 0xC0) == 0x80; }

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_line(std::string_view text) { return escaped(text, true); }

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  // A message names the thing at its beginning, and says what to try at its end.
  size_t head = most / 4 * 3, tail = text.size() - most / 4;
  while (head > 0 && is_inside_character(text, head)) --head;
  while (is_inside_character(text, tail)) ++tail;
  return fmt::format("{}... ({} bytes left out) ...{}", text.substr(0, head), tail - head, text.substr(tail));
}

}  // namespace megalith
