#include "megalith/base/first_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/base/printable.h"

namespace megalith {

namespace {

// Compilers print the source's line; of templates they print names of thousands of characters.
constexpr size_t kLongestLine = 400;

}  // namespace

std::string first_lines(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count && !text.empty(); ++i) {
    const size_t end = text.find('\n');
    result += shortened(text.substr(0, end), kLongestLine);
    if (end == std::string_view::npos) return result;
    result += '\n';
    text.remove_prefix(end + 1);
  }
  const auto left = std::count(text.begin(), text.end(), '\n');
  return result + (left > 0 ? fmt::format("... {} more lines\n", left) : "");
}

}  // namespace megalith
