// GPT-2's alphabet: how byte-level tokenizers write bytes as printable characters in their files. 188 bytes stand for
// themselves (as Latin-1), the other 68 are written as U+0100 to U+0143: a space is "Ġ", a newline "Ċ".
//
// Only files are in this alphabet. Everything is translated to plain bytes on loading, so encoding and decoding text
// never pass through it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megalith {

/// The bytes that `text` (valid UTF-8) stands for, or nothing if it has a character outside of the alphabet.
std::optional<std::string> byte_level_decode(std::string_view text);

/// `bytes` in the alphabet.
std::string byte_level_encode(std::string_view bytes);

}  // namespace megalith
