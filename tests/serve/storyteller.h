// The bundled model, as far as a front knows it.
#pragma once

#include <string>

#include "megalith/serve/served_model.h"

namespace megalith::test {

inline const Tokenizer& storyteller_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::open(MEGALITH_SOURCE_DIR "/models/storyteller");
  return tokenizer;
}

inline grammar::GrammarCompiler& storyteller_grammars() {
  static grammar::GrammarCompiler grammars(storyteller_tokenizer(), 4096);
  return grammars;
}
inline serve::ServedModel storyteller() {
  return {.names = {"storyteller", "tales"},
          .max_seq_len = 256,
          .vocab_size = 4096,
          .max_sequences = 8,
          .num_parameters = 6'600'000,
          .tokenizer = &storyteller_tokenizer(),
          .grammars = &storyteller_grammars(),
          .chat_template = ChatTemplate::from_folder(MEGALITH_SOURCE_DIR "/models/storyteller"),
          .stop_tokens = {0},
          .sampling = {.temperature = 0.8, .seed = 7}};
}

/// One whose text is its token ids: " 5 6".
inline serve::ServedModel numbers() {
  return {.names = {"numbers"}, .max_seq_len = 64, .vocab_size = 1000, .max_sequences = 64, .stop_tokens = {0}};
}

}  // namespace megalith::test
