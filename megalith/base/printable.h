// Text of unknown origin on its way into a message or to a terminal. Names in models' files, paths and generated text
// must not move the cursor, change colours, reverse the order of what is read, or begin lines of their own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace megalith {

/// Text of several lines: control characters, bidirectional overrides and bytes that are no UTF-8 are written as \x1b,
/// \u202e, \xff. Newlines and tabs stay. The result is valid UTF-8.
std::string printable(std::string_view text);

/// The same for what shall be one line: newlines are written as \n.
std::string printable_line(std::string_view text);

/// `text` if it has at most `most` bytes, or else its beginning and its end, and how much is missing between them. Cuts
/// no character.
std::string shortened(std::string_view text, size_t most);

}  // namespace megalith
