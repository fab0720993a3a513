#include "megalith/base/plain_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {

std::string plain_text(std::string_view text, std::string_view also) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F && c != '\\' && also.find(c) == std::string_view::npos)
      result += c;
    else
      result += fmt::format("\\x{:02x}", byte);
  }
  return result;
}

bool is_identifier(std::string_view name) {
  auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace megalith
