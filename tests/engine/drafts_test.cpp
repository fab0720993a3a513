// Drafts change nothing but when tokens come: in one kernel each token, and how likely it was, is the same without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/temporary_folder.h"
#include "engine/draft_cases.h"
#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/ops/draft_reference.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;

/// Sequences that repeat themselves, asked for in all the ways there are.
std::vector<Request> repeating_requests(size_t count) {
  std::mt19937_64 random(count);
  std::vector<Request> requests(count);
  for (size_t r = 0; r < count; ++r) {
    const size_t period = 3 + random() % 12, length = 20 + random() % 60;
    std::vector<int> part(period);
    for (int& token : part) token = static_cast<int>(random() % 60);
    for (size_t i = 0; i < length; ++i) requests[r].prompt.push_back(part[i % period]);
    ask_in_a_way_of_its_own(requests[r], r, random);
    // Some may end only where others would have, or have tokens that they would not have had.
    if (r % 6 == 1)
      requests[r].stop_token_ids = {part[0], part[1], 7},
      requests[r].min_tokens = std::min<int64_t>(12, requests[r].max_new_tokens);
    if (r % 6 >= 4) requests[r].logit_bias = {{part[0], -1.5f}, {part[1], 2.0f}, {part[2], 2.5f}};
    if (r % 5 == 3) requests[r].bad_words = {{part[0], part[1], part[2]}, {part[1]}};
  }
  return requests;
}

EngineOptions options_of(int64_t max_requests, int64_t draft_tokens) {
  EngineOptions options{.num_workers = 2, .regimes = std::vector<int64_t>{}, .prompt_rows = 0};
  options.decoder.max_requests = max_requests;
  options.decoder.max_rows = 40;
  options.decoder.max_seq_len = 256;
  options.decoder.draft_tokens = draft_tokens;
  options.decoder.draft_match = 2;
  return options;
}

/// What a model of random weights repeats, and so how many drafts are right, would depend on what a processor rounds.
struct ExactProducts : test::EnvironmentVariable {
  ExactProducts() : EnvironmentVariable("MEGALITH_PRODUCTS", "f32") {}
};

TEST(Drafts, LeaveTokensAsTheyAre) {
  const ExactProducts products;
  Engine plain(test::kTinyModel, options_of(20, 0)), drafting(test::kTinyModel, options_of(20, 7));
  for (const size_t count : {1, 3, 12, 20}) {
    const std::vector<Request> requests = repeating_requests(count);
    const Generation wanted = plain.generate(requests), given = drafting.generate(requests);
    SCOPED_TRACE(count);
    expect_same_sequences(given, wanted);
    EXPECT_EQ(wanted.drafted, 0u);
    EXPECT_GT(given.accepted, 2u) << count;
    EXPECT_GE(given.drafted, given.accepted);
  }
}

// Each row counts the drafts in front of it: the token that ends a sequence comes as soon as it may, in the middle of drafts, too.
TEST(Drafts, CountForTheLeastNumberOfTokens) {
  constexpr int kRepeated = 9, kEnd = 11;
  Engine engine(test::kTinyModel, options_of(1, 7));
  uint64_t accepted = 0;
  for (int64_t least = 1; least < 16; ++least) {
    Request request{.prompt = {5, 6, kRepeated, kRepeated, kRepeated}, .max_new_tokens = 40};
    request.allowed_token_ids = {kRepeated, kEnd};
    request.logit_bias = {{kEnd, 100.0f}};
    request.stop_token_ids = {kEnd};
    request.min_tokens = least;
    std::vector<int> wanted(static_cast<size_t>(least), kRepeated);
    wanted.push_back(kEnd);
    const Generation generation = engine.generate({request});
    EXPECT_EQ(generation.tokens[0], wanted) << least;
    EXPECT_EQ(generation.reasons[0], batch::kStopToken) << least;
    accepted += generation.accepted;
  }
  EXPECT_GT(accepted, 20u);
}

// In a kernel of few rows there is no room for drafts: with the first one a larger kernel goes on. More than its rows there are
// never.
TEST(Drafts, AreALoadThatAnotherKernelTakes) {
  const ExactProducts products;
  EngineOptions options = options_of(1, 15);
  options.regimes = {2};
  options.decoder.max_rows = 8;
  Engine engine(test::kTinyModel, options);
  Request request = repeating_requests(1)[0];
  request.max_new_tokens = 100;
  const Generation generation = engine.generate({request});
  EXPECT_EQ(generation.tokens[0].size(), 100u);
  EXPECT_GT(generation.accepted, 2u);
  EXPECT_EQ(generation.regimes.front(), 8) << "for the prompt";
}

// A sequence of two tokens in equal parts has always stood there before, and what came then comes again every other time. One that
// repeats itself has as many drafts as there may be.
TEST(Drafts, AreAsManyAsWereRightLately) {
  EngineOptions options = options_of(1, 7);
  options.decoder.draft_match = 1;
  Engine engine(test::kTinyModel, options);
  Request request{.prompt = {9, 11, 9, 9, 11}, .max_new_tokens = 200, .ignore_stop_tokens = true};
  request.allowed_token_ids = {9, 11};
  request.sampling = {.temperature = 99.0f, .seed = 3};
  const Generation random = engine.generate({request});
  EXPECT_GT(random.accepted, 20u);
  EXPECT_LT(random.drafted, 4 * random.accepted) << random.accepted;
  EXPECT_LT(random.drafted, 3 * random.draft_steps);
  request.allowed_token_ids = {9};
  const Generation repeating = engine.generate({request});
  EXPECT_GT(repeating.accepted, 165u);
  EXPECT_LE(repeating.drafted, repeating.accepted + 7);  // of the first step, by the prompt
  EXPECT_LE(repeating.draft_steps, 26u);
}

TEST(Drafts, AreThoseOfASlowReference) {
  constexpr int kDrafts = 7;
  const ExactProducts products;
  Engine engine(test::kTinyModel, options_of(1, kDrafts));
  // What stood behind the longest match, which has two tokens at least.
  const auto guess = [](const std::vector<int>& known, int64_t count) {
    const auto length = static_cast<int64_t>(known.size());
    const int64_t begin =
        ops::find_draft_place([&](int64_t s) { return known[static_cast<size_t>(s)]; }, length, 2).begin;
    std::vector<int> drafts;
    for (int64_t i = 0; i < count && begin > 0; ++i)
      drafts.push_back(known[static_cast<size_t>(begin + i % (length - begin))]);
    return drafts;
  };
  DraftCounts total;
  uint64_t num_whole = 0;
  for (Request& request : repeating_requests(24)) {
    // Of few tokens, so that some drafts are wrong, and some are only guessed.
    request.allowed_token_ids = {5, 9, 11};
    request.logit_bias.clear(), request.bad_words.clear(), request.stop_token_ids.clear();
    request.ignore_stop_tokens = true, request.max_new_tokens = 150;
    const Generation given = engine.generate({request});
    EXPECT_EQ(draft_counts(given), count_slowly(request.prompt, given.tokens[0], kDrafts, 0, guess));
    total += draft_counts(given);
    num_whole += given.drafted == given.accepted;
  }
  EXPECT_GT(total.accepted, 300u);
  EXPECT_GT(total.drafts, total.accepted + 100);
  EXPECT_LT(num_whole, 20u);
}

TEST(Drafts, AreNotSoMany) {
  try {
    Engine(test::kTinyModel, options_of(4, 16));
    FAIL();
  } catch (const UserError& error) { EXPECT_THAT(error.what(), HasSubstr("--draft-tokens is 16, want 0 to 15")); }
}

}  // namespace
}  // namespace megalith::engine
