// Unicode's normal forms and lower case, character by character, with the tables of utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// `text` must be valid UTF-8. O(n log n), also for text made of nothing but combining marks.
std::string unicode_normalize(std::string_view text, UnicodeForm form);

/// The lower case of one character, which may be two ("İ"). Without regard to its neighbours, as tokenizers have it: a
/// final sigma is no exception.
std::string unicode_lowercase(char32_t c);

/// White_Space.
bool unicode_is_space(char32_t c);

}  // namespace megalith
