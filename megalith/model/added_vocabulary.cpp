#include "megalith/model/added_vocabulary.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/log.h"
#include "megalith/model/json.h"

namespace megalith {

namespace {

// A folder whose files belong to two models has thousands of tokens to be warned of.
constexpr int kMaxWarnings = 3;

}  // namespace

void AddedVocabulary::add(const AddedToken& token) {
  places_.emplace(token.content, tokens_.size());
  ids_.insert(token.id);
  next_id_ = std::max(next_id_, token.id + 1);
  tokens_.push_back(token);
}

bool AddedVocabulary::is_taken(int id) const {
  const std::vector<std::string>& names = bpe_.bytes();
  return ids_.contains(id) || (static_cast<size_t>(id) < names.size() && !names[id].empty());
}

// As tokenizers counts: behind the vocabulary, and behind all tokens that are not of it. A vocabulary with gaps has ids
// beyond their number.
int AddedVocabulary::next_id() {
  while (is_taken(next_id_)) ++next_id_;
  MEGALITH_CHECK(next_id_ < kMaxTokenIds, "the tokenizer has more than {} tokens", kMaxTokenIds);
  return next_id_;
}

void AddedVocabulary::read(const JsonValue& value) {
  for (const AddedToken& token : added_tokens_from_json(value)) {
    const std::string name = json_quote(token.content);
    if (const std::optional<int> known = bpe_.find(token.content)) {
      if (*known != token.id)
        value.fail(fmt::format("gives {} the id {}, but the vocabulary gives it {}", name, token.id, *known));
    } else if (is_taken(token.id)) {
      value.fail(fmt::format("gives {} the id {}, which the vocabulary gives to another token", name, token.id));
    }
    add(token);
  }
}

void AddedVocabulary::check_id(const LaidToken& laid, int id) {
  if (laid.has_id && laid.token.id != id)
    warn(fmt::format("{} gives {} the id {}, but in tokenizer.json it has {}, which counts", laid.place,
                     json_quote(laid.token.content), laid.token.id, id));
}

void AddedVocabulary::warn(const std::string& what) {
  if (num_warnings_ < kMaxWarnings)
    log_warn("{}", what);
  else if (num_warnings_ == kMaxWarnings)
    log_warn("further tokens have other ids than their files say");
  ++num_warnings_;
}

void AddedVocabulary::lay(const LaidToken& laid) {
  using Does = LaidToken::Does;
  const auto entry = places_.find(laid.token.content);
  if (entry == places_.end()) {
    if (laid.does == Does::guards) return;
    AddedToken token = laid.token;
    if (const std::optional<int> known = bpe_.find(token.content)) {
      token.id = *known;
      check_id(laid, token.id);
    } else if (!laid.has_id || is_taken(token.id)) {
      token.id = next_id();
      if (laid.has_id)
        warn(fmt::format("{} gives {} the id {}, which another token has: it gets {}", laid.place,
                         json_quote(token.content), laid.token.id, token.id));
    }
    return add(token);
  }
  AddedToken& token = tokens_[entry->second];
  check_id(laid, token.id);
  // Whichever file says so, users do not write it; whether it is shown, the last one decides.
  const bool guarded = token.special || token.guarded || laid.token.special || laid.does == Does::guards;
  if (laid.does == Does::replaces) {
    const int id = token.id;
    token = laid.token;
    token.id = id;
  }
  if (laid.does == Does::adds) token.special |= laid.token.special;
  token.guarded = guarded;
}

}  // namespace megalith
