// Text to tokens and back, as the commands that make text need it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megalith/model/tokenizer.h"
#include "tools/model_options.h"

namespace megalith::tools {

/// A model's tokenizer; for a folder without one (shapes to try out, with dummy weights) a text is its token ids.
class Vocabulary {
 public:
  explicit Vocabulary(const ModelOptions& model);

  std::vector<int> encode(const std::string& text) const;
  /// A conversation as it was laid out (Tokenizer::encode).
  std::vector<int> encode(const std::vector<TextSegment>& segments, bool add_special,
                          const std::vector<int>& markers) const;
  /// The tokenizer's "eos_token".
  std::optional<int> end_token() const;
  /// Null for a folder without one.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

 private:
  std::vector<int> ids_of(const std::string& text) const;

  std::string folder_;
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace megalith::tools
