// The "decoder" of a tokenizer.json: from tokens back to text. Two kinds are known.
//
// ByteLevel: the tokens' bytes, one after the other; what makes no character becomes U+FFFD.
//
// SentencePiece-style, a sequence of Replace ("▁" to a space), ByteFallback, Fuse and Strip, in this order, each of
// them optional, or Metaspace: tokens are text, but for "<0x0A>" and the like, which are bytes. Bytes in a row make
// characters if all of them do; else each byte of the row becomes one U+FFFD.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/utf8.h"

namespace megalith {

class JsonValue;

/// What decoding carries from token to token.
struct DecoderState {
  Utf8Stream stream;      // ByteLevel: an unfinished character
  std::string byte_row;   // SentencePiece: bytes in a row so far
  size_t num_tokens = 0;  // before the next one
  int64_t num_stripped = 0;
  bool is_stripped = false;  // text has begun: nothing more is stripped
};

class TokenDecoder {
 public:
  /// `value` is the "decoder" member; other kinds and orders are refused by name.
  static TokenDecoder from_json(const JsonValue& value, bool is_byte_level);

  /// The text that a token completes. `token` is its bytes (ByteLevel), or what the file writes for it.
  std::string push(DecoderState& state, std::string_view token) const;
  /// What was held back at the end; the state starts anew.
  std::string finish(DecoderState& state) const;
  /// What one token stands for by itself, amid others.
  std::string token_bytes(std::string_view token) const;

 private:
  struct Replace {
    std::string from;
    std::string to;
  };
  void add_step(const JsonValue& value);
  std::string replaced(std::string_view token) const;
  std::string stripped(DecoderState& state, std::string text) const;

  bool is_byte_level_ = false;
  std::vector<Replace> replaces_;
  std::string metaspace_;               // "": no Metaspace
  bool metaspace_drops_first_ = false;  // the first token's metaspaces become nothing
  bool byte_fallback_ = false;
  bool fuses_ = false;
  std::string strip_content_;
  int64_t strip_start_ = 0;
};

}  // namespace megalith
