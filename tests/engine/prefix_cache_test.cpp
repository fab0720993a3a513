// Pages that sequences share, against a simple model of them.
#include "megalith/engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

namespace megalith::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<int>;
using Pages = std::vector<int32_t>;

constexpr int64_t kPage = 4;

PrefixCache cache_of(int64_t pages, bool keep = true) { return PrefixCache(PagePool(pages), kPage, keep); }

/// `count` tokens, each `first` more than its place.
Tokens tokens(int count, int first = 0) {
  Tokens all;
  for (int i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

/// A sequence comes, is worked through and goes; the pages that it found and all that it had.
std::pair<Pages, Pages> pass(PrefixCache& cache, const Tokens& all, const std::string& salt = "") {
  Pages found = cache.find(all, salt), pages = found;
  cache.hold(found);
  const auto needed = static_cast<int64_t>((all.size() + kPage - 1) / kPage);
  for (const int32_t page : cache.take(needed - static_cast<int64_t>(pages.size()))) pages.push_back(page);
  cache.enter(all, salt, pages);
  cache.release(pages);
  return {found, pages};
}

TEST(PrefixCache, FindsWholePagesOfTheSameTokens) {
  PrefixCache cache = cache_of(8);
  const Pages pages = pass(cache, tokens(10)).second;
  EXPECT_EQ(cache.num_available(), 8);
  EXPECT_EQ(cache.num_kept(), 2);
  EXPECT_THAT(cache.find(tokens(10), ""), ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(cache.find(tokens(8), ""), ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(cache.find(tokens(7), ""), ElementsAre(pages[0]));
  EXPECT_THAT(cache.find(tokens(3), ""), IsEmpty());
  Tokens other = tokens(10);
  other[5] = 99;
  EXPECT_THAT(cache.find(other, ""), ElementsAre(pages[0]));
  other[0] = 99;
  EXPECT_THAT(cache.find(other, ""), IsEmpty()) << "the second page of another first one";
}

// Where the page before it differs, a page of the same tokens has other keys.
TEST(PrefixCache, APageIsThatBehindAnother) {
  PrefixCache cache = cache_of(8);
  const Tokens twice = {1, 2, 3, 4, 1, 2, 3, 4};
  const Pages pages = pass(cache, twice).second;
  EXPECT_THAT(cache.find(Tokens{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}, ""), ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(cache.find(Tokens{9, 9, 9, 9, 1, 2, 3, 4}, ""), IsEmpty());
}

TEST(PrefixCache, SaltsShareNothing) {
  PrefixCache cache = cache_of(12);
  const Pages mine = pass(cache, tokens(8), "a").second;
  EXPECT_THAT(cache.find(tokens(8), ""), IsEmpty());
  EXPECT_THAT(cache.find(tokens(8), "b"), IsEmpty());
  const Pages theirs = pass(cache, tokens(8), "b").second;
  EXPECT_THAT(cache.find(tokens(8), "a"), ElementsAre(mine[0], mine[1]));
  EXPECT_THAT(cache.find(tokens(8), "b"), ElementsAre(theirs[0], theirs[1]));
}

TEST(PrefixCache, KeepsNothingWhereItShallNot) {
  PrefixCache cache = cache_of(4, false);
  pass(cache, tokens(8));
  EXPECT_EQ(cache.num_kept(), 0);
  EXPECT_THAT(cache.find(tokens(8), ""), IsEmpty());
}

TEST(PrefixCache, TheLeafUsedLongestAgoGoesFirst) {
  PrefixCache cache = cache_of(6);
  const Pages first = pass(cache, tokens(12)).second;       // 3 pages
  const Pages second = pass(cache, tokens(12, 50)).second;  // 3 others
  pass(cache, tokens(8));                                   // the first two once more
  EXPECT_EQ(cache.num_available(), 6);
  cache.release(cache.take(1));  // the first one's last page
  EXPECT_THAT(cache.find(tokens(12), ""), ElementsAre(first[0], first[1]));
  EXPECT_THAT(cache.find(tokens(12, 50), ""), ElementsAre(second[0], second[1], second[2]));
  cache.release(cache.take(3));  // of the second the last two, since one was free
  EXPECT_THAT(cache.find(tokens(12), ""), ElementsAre(first[0], first[1]));
  EXPECT_THAT(cache.find(tokens(12, 50), ""), ElementsAre(second[0]));
}

TEST(PrefixCache, WhatASequenceHasStays) {
  PrefixCache cache = cache_of(4);
  const Pages pages = pass(cache, tokens(8)).second;
  cache.hold(pages);
  EXPECT_EQ(cache.num_available(), 2);
  cache.release(cache.take(2));
  EXPECT_THAT(cache.find(tokens(8), ""), ElementsAre(pages[0], pages[1]));
  cache.hold(pages);  // a second one
  cache.release(pages);
  EXPECT_EQ(cache.num_available(), 2);
  cache.release(pages);
  EXPECT_EQ(cache.num_available(), 4);
}

// Two sequences of the same tokens side by side: the first one's page is the known one, and behind it the second one's next.
// Once the first has gone its page may be wanted while the second is still there.
TEST(PrefixCache, GivesUpAPageBeforeOneThatIsInUse) {
  PrefixCache cache = cache_of(4);
  const Pages first = cache.take(1), second = cache.take(2);
  cache.enter(tokens(4), "", first);
  cache.enter(tokens(8), "", second);
  EXPECT_THAT(cache.find(tokens(8), ""), ElementsAre(first[0], second[1]));
  cache.release(first);
  EXPECT_EQ(cache.num_available(), 2);
  const Pages others = cache.take(2);
  EXPECT_EQ(cache.num_available(), 0);
  EXPECT_THAT(cache.find(tokens(8), ""), IsEmpty());
  cache.enter(tokens(8), "", second);
  EXPECT_THAT(cache.find(tokens(8), ""), ElementsAre(second[0], second[1]));
  cache.release(others);
  cache.release(second);
  EXPECT_EQ(cache.num_available(), 4);
}

TEST(PrefixCache, ClearsWhatIsKeptAndInUse) {
  PrefixCache cache = cache_of(8);
  const Pages mine = cache.take(2);
  cache.enter(tokens(8), "", mine);
  pass(cache, tokens(12));
  pass(cache, tokens(12, 50));
  cache.clear();
  EXPECT_EQ(cache.num_kept(), 0);
  EXPECT_EQ(cache.num_available(), 6);
  EXPECT_THAT(cache.find(tokens(12), ""), IsEmpty());
  cache.release(mine);
  EXPECT_EQ(cache.num_available(), 8);
}

/// What a page stands for: the salt and all tokens up to its end.
using Prefix = std::pair<std::string, Tokens>;

/// The same with a map of whole prefixes, looking at all of them each time.
class Model {
 public:
  explicit Model(int64_t pages) : free_(pages) {}

  Pages find(const Tokens& all, const std::string& salt) const {
    Pages found;
    for (size_t end = kPage; end <= all.size(); end += kPage) {
      const auto entry = known_.find(prefix(all, salt, end));
      if (entry == known_.end()) break;
      found.push_back(entry->second);
    }
    return found;
  }
  void hold(const Pages& pages) {
    for (const int32_t page : pages) ++users_[page];
  }
  void take(const Pages& pages) {
    while (free_ < static_cast<int64_t>(pages.size())) evict();
    free_ -= static_cast<int64_t>(pages.size());
    for (const int32_t page : pages) {
      EXPECT_EQ(users_[page], 0);
      for (const auto& [known, of] : known_) EXPECT_NE(of, page);
      users_[page] = 1;
    }
  }
  void release(const Pages& pages) {
    ++now_;
    for (const int32_t page : pages)
      if (--users_[page] == 0) {
        released_[page] = now_;
        free_ += !is_known(page);
      }
  }
  void enter(const Tokens& all, const std::string& salt, const Pages& pages) {
    for (size_t i = 0; i < pages.size() && (i + 1) * kPage <= all.size(); ++i)
      known_.emplace(prefix(all, salt, (i + 1) * kPage), pages[i]);
  }
  int64_t num_kept() const {
    return std::ranges::count_if(known_, [&](const auto& entry) { return users_.at(entry.second) == 0; });
  }
  int64_t num_available() const { return free_ + num_kept(); }

 private:
  static Prefix prefix(const Tokens& all, const std::string& salt, size_t end) {
    return {salt, Tokens(all.begin(), all.begin() + static_cast<ptrdiff_t>(end))};
  }
  static bool begins_with(const Prefix& longer, const Prefix& shorter) {
    return longer.first == shorter.first && longer.second.size() >= shorter.second.size() &&
           std::equal(shorter.second.begin(), shorter.second.end(), longer.second.begin());
  }
  bool is_known(int32_t page) const {
    return std::ranges::any_of(known_, [&](const auto& entry) { return entry.second == page; });
  }
  void evict() {
    std::optional<Prefix> leaf, any;
    const auto before = [&](const Prefix& a, const Prefix& b) {
      const int32_t p = known_.at(a), q = known_.at(b);
      return std::pair(released_[p], p) < std::pair(released_[q], q);
    };
    for (const auto& [one, page] : known_) {
      if (users_[page] > 0) continue;
      if (!any || before(one, *any)) any = one;
      const bool is_leaf = std::ranges::none_of(
          known_, [&](const auto& other) { return other.first != one && begins_with(other.first, one); });
      if (is_leaf && (!leaf || before(one, *leaf))) leaf = one;
    }
    const Prefix gone = leaf ? *leaf : *any;
    std::erase_if(known_, [&](const auto& entry) {
      const bool goes = begins_with(entry.first, gone);
      free_ += goes && users_[entry.second] == 0;
      return goes;
    });
  }

  int64_t free_;
  uint64_t now_ = 0;
  std::map<Prefix, int32_t> known_;
  std::map<int32_t, int> users_;
  std::map<int32_t, uint64_t> released_;
};

void expect_same_as_model(uint64_t seed) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const int64_t num_pages = 6 + static_cast<int64_t>(below(30));
  PrefixCache cache = cache_of(num_pages);
  Model model(num_pages);
  struct Sequence {
    Tokens all;
    std::string salt;
    Pages pages;
  };
  std::vector<Sequence> sequences;
  // Few tokens, so that many begin alike.
  const auto draw = [&] {
    Tokens all(1 + below(22));
    for (size_t i = 0; i < all.size(); ++i) all[i] = i % kPage == 0 ? static_cast<int>(below(2)) : 7;
    return all;
  };
  for (int step = 0; step < 2000 && !testing::Test::HasFailure(); ++step) {
    const size_t what = below(10);
    if (what < 4) {
      Sequence one{draw(), below(5) == 0 ? "salt" : "", {}};
      const Pages found = cache.find(one.all, one.salt);
      ASSERT_EQ(found, model.find(one.all, one.salt));
      cache.hold(found);
      model.hold(found);
      const auto needed = static_cast<int64_t>(one.all.size() / kPage + 1 - found.size());
      ASSERT_EQ(cache.num_available(), model.num_available());
      one.pages = found;
      if (needed > cache.num_available()) {
        cache.release(found);
        model.release(found);
        continue;
      }
      const Pages taken = cache.take(needed);
      model.take(taken);
      one.pages.insert(one.pages.end(), taken.begin(), taken.end());
      sequences.push_back(std::move(one));
    } else if (!sequences.empty()) {
      const size_t which = below(sequences.size());
      Sequence& one = sequences[which];
      if (what < 7) {
        cache.enter(one.all, one.salt, one.pages);
        model.enter(one.all, one.salt, one.pages);
      } else {
        cache.release(one.pages);
        model.release(one.pages);
        sequences.erase(sequences.begin() + static_cast<ptrdiff_t>(which));
      }
    }
    ASSERT_EQ(cache.num_kept(), model.num_kept());
    ASSERT_EQ(cache.num_available(), model.num_available());
  }
  for (const Sequence& one : sequences) cache.release(one.pages);
  EXPECT_EQ(cache.num_available(), num_pages);
  cache.clear();
  EXPECT_EQ(cache.num_kept(), 0);
  EXPECT_EQ(cache.num_available(), num_pages);
}

TEST(PrefixCache, IsTheSimpleModel) {
  for (uint64_t seed = 0; seed < 20; ++seed) expect_same_as_model(seed);
}

}  // namespace
}  // namespace megalith::engine
