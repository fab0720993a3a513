// Names on their way into a text that something reads again: a source, a listing, a script. A model's folder, a tensor and
// a node may be called anything; what stands in such a text must not end a line, a comment or a name.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// Printable ASCII stays; all else, a backslash, and what is in `also`, becomes \x0d. Two names that differ do so
/// afterwards.
std::string plain_text(std::string_view text, std::string_view also = "");

/// Letters, digits and _, no digit first.
bool is_identifier(std::string_view name);

}  // namespace megalith
