// Text to token ids and back, as a tokenizer.json says: the pipeline of Hugging Face's tokenizers for byte-pair
// encoding, of bytes (GPT-2, Llama 3, Qwen, GPT-4o) and of characters (SentencePiece's: Llama 2, Mistral).
//
//   added tokens | normalizer | added tokens in normalized text | pre-tokenizer | BPE | template
//   and back: decoder
//
// What a file asks for and Megalith does not know is refused by name on loading: a tokenizer that is nearly right feeds
// the model other tokens than it was trained on, and nobody sees why it is stupid. Two members are ignored, as
// transformers ignores them: "truncation" and "padding". What the folder's other files say of tokens lies over it
// (special_tokens.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/marked_text.h"
#include "megalith/model/special_tokens.h"
#include "megalith/model/token_decoder.h"

namespace megalith {

/// Immutable after loading; one instance serves any number of threads.
///   Tokenizer tokenizer = Tokenizer::open("models/storyteller");
///   std::vector<int> ids = tokenizer.encode("Once upon a time");
///   std::string text = tokenizer.decode(ids);
class Tokenizer {
 public:
  /// `path` is a folder, or a tokenizer.json, which then is all that counts.
  static Tokenizer open(const std::string& path);
  /// The same from the file's text; `name` stands for the file in messages.
  static Tokenizer parse(std::string_view json, const std::string& name, const SpecialTokens& special = {});
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Invalid UTF-8 is repaired with U+FFFD first (utf8.h). `add_special`: with the tokens that the file's template puts
  /// around a sequence, such as Llama 3's <|begin_of_text|>. `parse_special`: whether "<|im_end|>" in the text is that
  /// token, or ten characters; pass false for text of strangers.
  std::vector<int> encode(std::string_view text, bool add_special = true, bool parse_special = true) const;

  /// A prompt in stretches (ChatTemplate::render) as one text: words may reach over a border, but what is of a user's
  /// content has no part in a token that any file calls special, nor in one of `markers`, by their ids.
  std::vector<int> encode(std::span<const TextSegment> segments, bool add_special = false,
                          std::vector<int> markers = {}) const;

  /// Valid UTF-8; bytes that make no character become U+FFFD. Ids without a token (models pad their vocabulary) are
  /// nothing. `skip_special` leaves special tokens out.
  std::string decode(std::span<const int> ids, bool skip_special = true) const;

  /// decode() token by token; see StreamDecoder.
  std::string decode_push(DecoderState& state, int id, bool skip_special = true) const;
  std::string decode_finish(DecoderState& state) const;

  /// The id of a token as the file writes it: "<|im_end|>", "Ġthe".
  std::optional<int> token_id(std::string_view name) const;
  /// Bytes of one token, not always whole characters; "" if there is no such id.
  std::string_view token_bytes(int id) const;
  bool is_special(int id) const;
  /// Whether the files list it as a token of its own ("added"), as they do special ones and "<think>".
  bool is_added(int id) const;
  /// The one that ends a text, as the folder's files name it ("eos_token").
  std::optional<int> end_token() const;
  /// One more than the largest id. The model's embedding may have more rows.
  int vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace megalith
