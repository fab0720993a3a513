// A text as JSON has it, for whoever writes JSON piece by piece.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// `text` as a JSON string, quotes included. Invalid UTF-8 becomes U+FFFD.
std::string json_quote(std::string_view text);

}  // namespace megalith
