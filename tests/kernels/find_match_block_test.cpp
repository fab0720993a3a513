// Where drafts come from (kernels/drafts.h): the longest match, of equals the last, as a thread finds it and as a GPU's block does
// (scheduler/find_match.cuh), on a block of the host's threads, against the slow reference, in sequences that repeat themselves in every way.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_find_match_block
#define MEGALITH_BLOCK_WARPS 3
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 64 << 10, .area_bytes = 32 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/scheduler/find_match.cuh"
#include "megalith/ops/draft_reference.h"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

constexpr int kLongest = batch::kLongestMatch;

/// Where a match ends, and how many tokens it has; of a DraftMatch and of the reference's place.
struct Place {
  i64 end, same;
  bool operator==(const Place&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.same << " tokens up to " << place.end;
  }
};
constexpr Place kNowhere = {-1, 0};

Place by_reference(std::span<const int> tokens) {
  const ops::DraftPlace place =
      ops::find_draft_place([&](i64 s) { return tokens[static_cast<size_t>(s)]; }, static_cast<i64>(tokens.size()), 1);
  return {place.begin - 1, place.same};
}
Place place_of(DraftMatch match) { return match == 0 ? kNowhere : Place{match_end(match), match_length(match)}; }
Place by_thread(std::span<const int> tokens, int least = 1) {
  return place_of(
      find_match([&](int s) { return tokens[static_cast<size_t>(s)]; }, static_cast<int>(tokens.size()), least));
}

/// What a block finds in each of some sequences. No token is looked at that the sequence has not.
std::vector<Place> by_block_of(const std::vector<std::vector<int>>& sequences) {
  std::vector<Place> found(sequences.size());
  DraftMatch matches[kWarps];
  by_block([&] {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const std::vector<int>& tokens = sequences[i];
      const DraftMatch match = find_match_by_block([&](int s) { return tokens.at(static_cast<size_t>(s)); },
                                                   static_cast<int>(tokens.size()), matches);
      if (thread() == static_cast<int>(i % kThreads)) found[i] = place_of(match);
      block_sync();
    }
  });
  return found;
}

void expect_the_references(const std::vector<std::vector<int>>& sequences) {
  const std::vector<Place> of_block = by_block_of(sequences);
  for (size_t i = 0; i < sequences.size() && !::testing::Test::HasFailure(); ++i) {
    const Place wanted = by_reference(sequences[i]);
    EXPECT_EQ(by_thread(sequences[i]), wanted) << "sequence " << i;
    EXPECT_EQ(of_block[i], wanted) << "sequence " << i;
  }
}

std::vector<int> random_tokens(std::mt19937_64& random, size_t count, int kinds) {
  std::vector<int> tokens(count);
  for (int& token : tokens) token = static_cast<int>(random() % static_cast<u64>(kinds));
  return tokens;
}
void append(std::vector<int>& tokens, std::span<const int> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

TEST(FindMatch, IsTheReferencesInRandomSequences) {
  std::mt19937_64 random(1);
  std::vector<std::vector<int>> sequences;
  for (int i = 0; i < 400; ++i)
    sequences.push_back(random_tokens(random, 1 + random() % 300, std::array{1, 2, 3, 50}[random() % 4]));
  expect_the_references(sequences);
}

// Copies of parts of the sequence one behind the other, now and then with another token in between: long matches, and many of them.
TEST(FindMatch, IsTheReferencesInSequencesThatRepeatThemselves) {
  std::mt19937_64 random(2);
  std::vector<std::vector<int>> sequences;
  size_t num_long = 0, num_limited = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<int> tokens = random_tokens(random, 1 + random() % 20, 1 + static_cast<int>(random() % 4));
    while (tokens.size() < 50 + random() % 400) {
      const size_t begin = random() % tokens.size(),
                   count = 1 + random() % std::min<size_t>(tokens.size() - begin, 150);
      append(tokens, std::vector<int>(tokens.begin() + static_cast<i64>(begin),
                                      tokens.begin() + static_cast<i64>(begin + count)));
      if (random() % 3 == 0) tokens.push_back(static_cast<int>(random() % 5));
    }
    const i64 same = by_reference(tokens).same;
    num_long += same > 16 && same < kLongest, num_limited += same == kLongest;
    sequences.push_back(std::move(tokens));
  }
  expect_the_references(sequences);
  EXPECT_GT(num_long, 50u);
  EXPECT_GT(num_limited, 50u);
}

// What follows the longest match is the draft, also where a shorter one stands behind it, and shorter means one token less.
TEST(FindMatch, IsTheLongestWhereverItStands) {
  for (const int same : {4, 17, kLongest - 1}) {
    std::mt19937_64 random(3);
    const std::vector<int> part = random_tokens(random, static_cast<size_t>(same), 1000);
    const std::span<const int> shorter = std::span(part).subspan(1);
    std::vector<int> tokens = random_tokens(random, 9, 1000);
    append(tokens, part);
    const Place longest = {static_cast<i64>(tokens.size()) - 1, same};
    tokens.push_back(2000);
    for (int i = 0; i < 5; ++i) {  // each behind another token than the one in front of the longest
      tokens.push_back(3000 + i);
      append(tokens, shorter);
    }
    tokens.push_back(4000);
    append(tokens, part);
    EXPECT_EQ(by_reference(tokens), longest);
    expect_the_references({tokens});
    EXPECT_EQ(by_thread(tokens, same), longest);
    EXPECT_EQ(by_thread(tokens, same + 1), kNowhere);
  }
}

// Of places with as many tokens the last one, and so of those with more than are compared.
TEST(FindMatch, IsTheLastOfEquals) {
  for (const int same : {1, 3, 16, kLongest, 2 * kLongest}) {
    std::mt19937_64 random(4);
    const std::vector<int> part = random_tokens(random, static_cast<size_t>(same), 1000);
    std::vector<int> tokens;
    i64 last = 0;
    for (int i = 0; i < 40; ++i) {
      tokens.push_back(2000 + i);
      append(tokens, part);
      if (i < 39) last = static_cast<i64>(tokens.size()) - 1;
    }
    const Place wanted = {last, std::min(same, kLongest)};
    EXPECT_EQ(by_reference(tokens), wanted);
    expect_the_references({tokens});
  }
}

// One token again and again: what stands in front of the last one has all that is compared.
TEST(FindMatch, OfOneTokenIsInFrontOfTheLast) {
  std::vector<std::vector<int>> sequences;
  for (size_t length = 1; length < 200; ++length) sequences.emplace_back(length, 7);
  expect_the_references(sequences);
  EXPECT_EQ(by_thread(sequences.back()), (Place{197, kLongest}));
  EXPECT_EQ(by_thread(sequences[0]), kNowhere);
}

}  // namespace
}  // namespace megalith::kernels
