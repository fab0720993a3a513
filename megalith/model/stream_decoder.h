// Decoding while tokens arrive. A token may end within a character; what is not yet a character is held back, so that
// printed text is always valid, and all pieces together are what Tokenizer::decode says of all ids.
#pragma once

#include <string>

#include "megalith/model/token_decoder.h"

namespace megalith {

class Tokenizer;

///   StreamDecoder decoder(tokenizer);
///   for (int id : generated) std::cout << decoder.push(id) << std::flush;
///   std::cout << decoder.finish();
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  /// The text that this token completes; "" while a character is unfinished.
  std::string push(int id);
  /// What was held back, as far as it is text: U+FFFD if the tokens ended within a character. The decoder starts anew.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecoderState state_;
};

}  // namespace megalith
