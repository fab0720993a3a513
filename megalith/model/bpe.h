// The "model" of a tokenizer.json: byte-pair encoding. A word starts as its symbols; the pair of neighbours whose merge
// stands first in the list is joined, again and again, until no pair has a merge.
//
// In a byte-level tokenizer the symbols are bytes; the file's alphabet is translated on loading. In a
// SentencePiece-style one they are characters. A symbol without a token becomes the tokens of its bytes ("<0xF0>") if
// the file says byte_fallback, or else the unknown token, or else nothing. Joining takes n log n steps with a queue, so
// a megabyte without a space is no attack. Words met before come from a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

class JsonValue;

/// Ids are below this: far above every published vocabulary, and a table of this size is small.
constexpr int kMaxTokenIds = 1 << 22;

class Bpe {
 public:
  enum class Symbols { bytes, characters };

  /// `value` is the "model" member; options that change tokens and are not supported are refused by name.
  static Bpe from_json(const JsonValue& value, Symbols symbols);
  Bpe(Bpe&&) noexcept;
  Bpe& operator=(Bpe&&) noexcept;
  ~Bpe();

  /// Appends the ids of one word. Safe to call from several threads.
  void encode(std::vector<int>& ids, std::string_view word) const;

  /// The id of a token as the file writes it ("Ġthe").
  std::optional<int> find(std::string_view token) const;
  /// Bytes of each token, by id; "" where there is none. Of a SentencePiece-style token, what the file writes.
  const std::vector<std::string>& bytes() const;
  /// How many there are, whatever their ids.
  size_t num_tokens() const;

 private:
  struct Impl;
  explicit Bpe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace megalith
