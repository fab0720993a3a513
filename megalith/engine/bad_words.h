// Words that are not to be made, as the tokens that they may be made of.
#pragma once

#include <string>
#include <vector>

#include "megalith/model/tokenizer.h"

namespace megalith::engine {

/// Each word as it begins a text and as it stands behind a space, as vLLM has it; what ends the same way is one. UserError for a
/// word that is nothing but spaces, or no token at all. The same text made of other tokens is another word.
std::vector<std::vector<int>> bad_word_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& words);

}  // namespace megalith::engine
