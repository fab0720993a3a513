// The "added_tokens" of a tokenizer.json: strings that become one token wherever they stand, before any splitting or
// merging: "<|endoftext|>", "<think>". Special ones steer the model and are left out of decoded text on request.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megalith/model/marked_text.h"

namespace megalith {

class EncodeBudget;
class JsonValue;

struct AddedToken {
  int id = 0;
  std::string content;
  bool special = false;      // left out of decoded text on request
  bool guarded = false;      // users cannot write it; so is each special one
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in normalized text
};

/// Finds tokens in text: at each place the longest, scanning left to right. One for raw and one for normalized text.
class AddedTokenFinder {
 public:
  /// `pattern` becomes `token`; of two tokens with the same pattern, the first stays.
  void add(std::string_view pattern, const AddedToken& token);

  /// Cuts valid UTF-8 `text` into pieces, in order: visit(piece, nullptr) for text, visit(piece, token) for a token.
  /// Where a stranger wrote any of it, a token that is special, guarded, or one of `markers` (ids, sorted) is text:
  /// strangers must not steer the model.
  void each_piece(const MarkedView& text, std::span<const int> markers, EncodeBudget& budget,
                  const std::function<void(const MarkedView& piece, const AddedToken* token)>& visit) const;

 private:
  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
  };
  std::optional<Match> find(std::string_view text, size_t from, EncodeBudget& budget) const;

  std::vector<AddedToken> tokens_;
  size_t pattern_bytes_ = 0;
  std::array<bool, 256> begins_{};      // by byte: whether a pattern begins so; most of text is passed over by it
  std::vector<int> token_of_node_{-1};  // trie over bytes; node 0 is the root
  std::unordered_map<uint64_t, int> children_;  // (node << 8 | byte) -> node
};

/// Reads the "added_tokens" member: ids in range, contents not empty, no content and no id for two tokens.
std::vector<AddedToken> added_tokens_from_json(const JsonValue& value);
/// One of them, without its id. `is_special`: whatever it says of that.
AddedToken added_token_from_json(const JsonValue& value, bool is_special = false);
/// Fails `value`, which it comes from, if its content is empty or too long.
void check_added_token(const AddedToken& token, const JsonValue& value);

}  // namespace megalith
