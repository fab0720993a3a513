#include "megalith/model/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_set>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/model/bpe.h"
#include "megalith/model/encode_budget.h"
#include "megalith/model/json.h"
#include "megalith/model/unicode_form.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

constexpr size_t kLongestToken = 1024;
// Of all tokens together. Each byte becomes a node of some 50 bytes; published tokenizers have a few thousand tokens,
// of ten bytes each.
constexpr size_t kMaxPatternBytes = 4 << 20;

// \w: letters, marks, decimal digits, connectors, letter numbers, circled letters and the two joiners.
bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9)) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool left = begin > 0 && is_word(utf8_code_point(text.substr(utf8_last(text.substr(0, begin)))));
  const bool right = end < text.size() && is_word(utf8_code_point(text.substr(end)));
  return !left && !right;
}

size_t skip_space_left(std::string_view text, size_t begin) {
  while (begin > 0) {
    const size_t last = utf8_last(text.substr(0, begin));
    if (!unicode_is_space(utf8_code_point(text.substr(last)))) break;
    begin = last;
  }
  return begin;
}

size_t skip_space_right(std::string_view text, size_t end) {
  while (end < text.size() && unicode_is_space(utf8_code_point(text.substr(end)))) end += utf8_next(text.substr(end));
  return end;
}

}  // namespace

void AddedTokenFinder::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  pattern_bytes_ += pattern.size();
  MEGALITH_CHECK(pattern_bytes_ <= kMaxPatternBytes, "the added tokens have more than {} bytes in all",
                 kMaxPatternBytes);
  begins_[static_cast<uint8_t>(pattern[0])] = true;
  int node = 0;
  for (char byte : pattern) {
    const uint64_t edge = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
    const auto [child, is_new] = children_.emplace(edge, static_cast<int>(token_of_node_.size()));
    if (is_new) token_of_node_.push_back(-1);
    node = child->second;
  }
  if (token_of_node_[node] >= 0) return;
  token_of_node_[node] = static_cast<int>(tokens_.size());
  tokens_.push_back(token);
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, size_t from,
                                                              EncodeBudget& budget) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<uint8_t>(text[begin])]) continue;
    int node = 0;
    std::optional<Match> longest;
    size_t i = begin;
    for (; i < text.size(); ++i) {
      const auto child = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[i]));
      if (child == children_.end()) break;
      node = child->second;
      if (token_of_node_[node] >= 0) longest = Match{begin, i + 1, &tokens_[token_of_node_[node]]};
    }
    budget.charge_steps(i - begin + 1);
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokenFinder::each_piece(const MarkedView& marked, std::span<const int> markers, EncodeBudget& budget,
                                  const std::function<void(const MarkedView&, const AddedToken*)>& visit) const {
  const std::string_view text = marked.text;
  size_t done = 0;  // up to here, text is visited
  size_t from = 0;  // from here, tokens are looked for; a match that is passed over is not looked into again
  auto is_kept_from_users = [&](const AddedToken& token) {
    return token.special || token.guarded || std::ranges::binary_search(markers, token.id);
  };
  while (!tokens_.empty()) {
    const std::optional<Match> match = find(text, from, budget);
    if (!match) break;
    from = match->end;
    const AddedToken& token = *match->token;
    if (marked.is_marked(match->begin, match->end) && is_kept_from_users(token)) continue;
    if (token.single_word && !stands_alone(text, match->begin, match->end)) continue;
    const size_t begin = token.lstrip ? std::max(skip_space_left(text, match->begin), done) : match->begin;
    const size_t end = token.rstrip ? skip_space_right(text, match->end) : match->end;
    if (done < begin) visit(marked.part(done, begin), nullptr);
    visit(marked.part(match->begin, match->end), &token);
    done = end;
  }
  if (done < text.size()) visit(marked.part(done, text.size()), nullptr);
}

void check_added_token(const AddedToken& token, const JsonValue& value) {
  if (token.content.empty() || token.content.size() > kLongestToken)
    value.fail(fmt::format("has a content of {} bytes, want 1 to {}", token.content.size(), kLongestToken));
}

AddedToken added_token_from_json(const JsonValue& value, bool is_special) {
  auto flag = [&](const char* key, bool absent) {
    auto member = value.find(key);
    return member ? member->boolean() : absent;
  };
  AddedToken token;
  token.content = value.at("content").string();
  token.special = is_special || flag("special", false);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.normalized = flag("normalized", !token.special);
  check_added_token(token, value);
  return token;
}

std::vector<AddedToken> added_tokens_from_json(const JsonValue& value) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, int> id_of_content;
  std::unordered_set<int> ids;
  value.each_element([&](const JsonValue& entry) {
    AddedToken token = added_token_from_json(entry);
    token.id = static_cast<int>(entry.at("id").integer(0, kMaxTokenIds - 1));
    const auto [known, is_new] = id_of_content.emplace(token.content, token.id);
    if (!is_new && known->second == token.id) {  // said twice: the last one counts
      *std::ranges::find(tokens, token.id, &AddedToken::id) = std::move(token);
      return;
    }
    if (!is_new)
      entry.fail(fmt::format("has the content {}, which another added token has too", json_quote(token.content)));
    if (!ids.insert(token.id).second)
      entry.fail(fmt::format("has the id {}, which another added token has too", token.id));
    tokens.push_back(std::move(token));
  });
  return tokens;
}

}  // namespace megalith
