// UTF-8 that nobody vouches for: made valid, walked, and cut at character borders.
//
// Invalid input is repaired, not refused: each longest prefix of a character that went wrong becomes one U+FFFD, which
// is what Unicode recommends and what browsers and Rust do. Text then always tokenizes, and the damage is visible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megalith {

/// Length of the character at the start of `text` (1 to 4), or 0 if it is incomplete: a good beginning that `text` ends
/// in the middle of. Negative: invalid, and its absolute value bytes are to be replaced by one U+FFFD.
int utf8_next(std::string_view text);

/// Code point of the valid character at the start of `text`.
char32_t utf8_code_point(std::string_view text);

/// Where the last character of valid, non-empty `text` begins.
size_t utf8_last(std::string_view text);

void utf8_append(std::string& text, char32_t code_point);

bool utf8_is_valid(std::string_view text);

/// `text` with all that is invalid replaced by U+FFFD.
std::string utf8_repair(std::string_view text);

/// Takes bytes in any pieces and gives back characters: valid UTF-8 that never ends within a character.
class Utf8Stream {
 public:
  /// What became complete with `bytes`; an unfinished character at the end is held back.
  std::string push(std::string_view bytes);
  /// What was held back, as U+FFFD; the stream starts anew.
  std::string finish();

 private:
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace megalith
