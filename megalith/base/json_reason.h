// What a JSON library complains about, in words for whoever wrote the text.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// "[json.exception.parse_error.101] parse error at line 1, column 4: syntax error while parsing value - invalid
/// literal; last read: '#'" as "line 1, column 4: invalid literal; last read: '#'".
std::string json_reason(std::string_view what);

}  // namespace megalith
