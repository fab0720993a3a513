// What a model's folder says of tokens beside its tokenizer.json, whose added tokens these lie over, as transformers 5
// has it:
//
// * tokenizer_config.json: "added_tokens_decoder", "bos_token" and the like, lists of further special tokens;
// * special_tokens_map.json and added_tokens.json, which are older, and count where the former has no
//   "added_tokens_decoder".
//
// transformers ignores some of these lists where there is another one. A token that any of them calls special is kept
// out of what users write all the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/model/added_tokens.h"

namespace megalith {

/// Bytes of tokenizer_config.json and its neighbours, far above every published one.
constexpr size_t kMaxTokenFileBytes = 16 << 20;

/// A token that a file lays over those of tokenizer.json.
struct LaidToken {
  enum class Does {
    replaces,  // its flags are those of the token from now on; a new token if there is none
    adds,      // a new token if there is none; else it is known to be special
    guards,    // if there is one, users cannot write it
  };
  AddedToken token;     // its id counts if has_id
  bool has_id = false;  // else a new token gets the next free one
  Does does = Does::adds;
  std::string place;  // for messages: "models/x/tokenizer_config.json: \"eos_token\""
};

struct SpecialTokens {
  /// What templates print: {"bos_token", "<s>"}, {"image_token", "<image>"}.
  std::vector<std::pair<std::string, std::string>> names;
  std::vector<LaidToken> tokens;
  bool split = false;  // "split_special_tokens": no text becomes a special token
  // "add_bos_token" and "add_eos_token". transformers 5 reads neither where there is a tokenizer.json, which says it
  // itself; older ones did.
  std::optional<bool> adds_bos, adds_eos;

  /// The token that plays a part: named("eos_token").
  std::optional<std::string> named(std::string_view part) const;

  /// Empty if the folder has none of the files. UserError naming file and key for what cannot be.
  static SpecialTokens from_folder(const std::string& folder);
  /// The same from the texts of tokenizer_config.json, special_tokens_map.json and added_tokens.json; "": it has none.
  static SpecialTokens parse(std::string_view config, std::string_view map, std::string_view added);
};

}  // namespace megalith
