// Text of unknown origin on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// Control characters as \x1b: names in models' files and paths must not move the cursor or change colours. Newlines
/// and tabs stay.
std::string printable(std::string_view text);

}  // namespace megalith
