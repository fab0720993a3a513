// A long log, as much of it as an error shows.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// The first `count` lines, and then how many were left out: "... 10 more lines". Of a long line its two ends.
std::string first_lines(std::string_view text, int count);

}  // namespace megalith
