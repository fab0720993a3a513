#include "megalith/model/byte_level.h"

#include <array>
#include <cstdint>

#include "megalith/model/utf8.h"

namespace megalith {

namespace {

struct Alphabet {
  std::array<char32_t, 256> character;
  std::array<int, 0x144> byte;  // -1: no byte is written so

  constexpr Alphabet() : character{}, byte{} {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = b;
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::optional<std::string> byte_level_decode(std::string_view text) {
  std::string bytes;
  for (; !text.empty(); text.remove_prefix(utf8_next(text))) {
    const char32_t c = utf8_code_point(text);
    if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[c]);
  }
  return bytes;
}

std::string byte_level_encode(std::string_view bytes) {
  std::string text;
  for (char byte : bytes) utf8_append(text, kAlphabet.character[static_cast<uint8_t>(byte)]);
  return text;
}

}  // namespace megalith
