// The added tokens of a model: those of its tokenizer.json, and what its folder's other files lay over them
// (special_tokens.h).
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "megalith/model/added_tokens.h"
#include "megalith/model/bpe.h"
#include "megalith/model/special_tokens.h"

namespace megalith {

class AddedVocabulary {
 public:
  explicit AddedVocabulary(const Bpe& bpe) : bpe_(bpe), next_id_(static_cast<int>(bpe.num_tokens())) {}

  /// The "added_tokens" member. UserError if the vocabulary says otherwise.
  void read(const JsonValue& value);
  /// A warning if its token has another id already, or another token its id: then it gets the next free one.
  void lay(const LaidToken& laid);

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  void add(const AddedToken& token);
  bool is_taken(int id) const;
  int next_id();
  void check_id(const LaidToken& laid, int id);
  void warn(const std::string& what);

  const Bpe& bpe_;
  int next_id_;
  int num_warnings_ = 0;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> places_;  // in tokens_, by content
  std::unordered_set<int> ids_;
};

}  // namespace megalith
