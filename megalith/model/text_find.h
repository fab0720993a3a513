// Looking for a text in another one, both of unknown origin.
#pragma once

#include <string.h>

#include <cstddef>
#include <string_view>

namespace megalith {

/// text.find(wanted, from), in linear time; the standard library's takes the product of both lengths for
/// "aaa...b" in "aaa...".
inline size_t text_find(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found = ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

}  // namespace megalith
