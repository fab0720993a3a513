#include "megalith/engine/bad_words.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"

namespace megalith::engine {

std::vector<std::vector<int>> bad_word_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& words) {
  std::vector<std::vector<int>> all;
  for (const std::string& word : words) {
    const size_t begin = word.find_first_not_of(' ');
    MEGALITH_CHECK(begin != std::string::npos, "bad_words has the word {}, want one that is more than spaces",
                   json_quote(word));
    const std::string bare = word.substr(begin);
    const std::vector<int> first = tokenizer.encode(bare, false), behind = tokenizer.encode(" " + bare, false);
    MEGALITH_CHECK(!first.empty(), "bad_words has the word {}, which has no tokens", json_quote(word));
    all.push_back(first);
    if (behind.size() < first.size() || !std::equal(first.rbegin(), first.rend(), behind.rbegin()))
      all.push_back(behind);
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace megalith::engine
