#include "megalith/base/first_lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {

std::string first_lines(std::string_view text, int count) {
  size_t end = 0;
  for (int i = 0; i < count && end < text.size(); ++i) end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const auto left = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n');
  return std::string(text.substr(0, end)) + (left > 0 ? fmt::format("... {} more lines\n", left) : "");
}

}  // namespace megalith
