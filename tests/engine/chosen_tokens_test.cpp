// Requests that say which tokens they may have: biases of logits, tokens that alone are allowed, stop tokens of their own, and
// how many there are before one ends them. Each token is that of the edited logits, and nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokens = 12;
constexpr float kNever = -std::numeric_limits<float>::infinity();

EngineOptions options_with(std::vector<int> stop_tokens) {
  EngineOptions options{.num_workers = 2, .stop_tokens = std::move(stop_tokens)};
  options.decoder.max_seq_len = 128;
  options.decoder.max_requests = 3;
  return options;
}

class ChosenTokens : public ::testing::Test {
 protected:
  static constexpr const char* kModel = MEGALITH_SOURCE_DIR "/tests/golden/tiny/qwen3_tied";

  explicit ChosenTokens(const std::vector<int>& stop_tokens = {}) : engine_(kModel, options_with(stop_tokens)) {}

  /// What the model makes of the prompt by itself.
  std::vector<int> plain() {
    return engine_.generate({{.prompt = prompt_, .max_new_tokens = kTokens, .ignore_stop_tokens = true}}).tokens[0];
  }
  /// That each token of the request, which is greedy, is the first one of the largest of the logits that `edit(row, i)` makes
  /// of the model's in front of token i.
  template <class Edit>
  std::vector<int> expect_argmax(const Request& request, Edit edit) {
    const std::vector<int> all = engine_.generate({request}).tokens[0];
    for (size_t i = 0; i < all.size(); ++i) {
      Request cut = request;
      cut.max_new_tokens = static_cast<int64_t>(i) + 1;
      cut.min_tokens = std::min(request.min_tokens, cut.max_new_tokens);
      EXPECT_EQ(engine_.generate({cut}).tokens[0].back(), all[i]) << i;
      std::vector<float> row(engine_.logits(), engine_.logits() + engine_.config().vocab_size);
      edit(row, static_cast<int64_t>(i));
      EXPECT_EQ(all[i], std::ranges::max_element(row) - row.begin()) << "token " << i;
    }
    return all;
  }
  Request request() const { return {.prompt = prompt_, .max_new_tokens = kTokens, .ignore_stop_tokens = true}; }
  std::string refusal(const Request& wrong) {
    try {
      engine_.generate({wrong});
    } catch (const UserError& error) { return error.what(); }
    return "";
  }

  std::vector<int> prompt_ = {5, 6, 7};
  Engine engine_;
};

TEST_F(ChosenTokens, AreThoseOfTheBiasedLogits) {
  Request biased = request();
  const std::vector<int> without = plain();
  for (size_t i = 0; i < without.size(); ++i) biased.logit_bias[without[i]] = i % 2 == 0 ? -100.0F : -0.5F;
  biased.logit_bias[static_cast<int>(engine_.config().vocab_size) - 1] = 2;
  const std::vector<int> tokens = expect_argmax(biased, [&](std::vector<float>& row, int64_t) {
    for (const auto& [token, bias] : biased.logit_bias) row[static_cast<size_t>(token)] += bias;
  });
  EXPECT_NE(tokens, without);
  for (const auto& [token, bias] : biased.logit_bias)
    if (bias < -99) { EXPECT_EQ(std::ranges::count(tokens, token), 0) << token; }
}

// Biases come first, and penalties are those of the biased logits.
TEST_F(ChosenTokens, AreBiasedAheadOfPenalties) {
  Request both = request();
  both.sampling = {.repetition_penalty = 1.7F};
  both.logit_bias = {{plain()[0], 6.0F}, {plain()[1], -3.0F}};
  expect_argmax(both, [&](std::vector<float>& row, int64_t i) {
    for (const auto& [token, bias] : both.logit_bias) row[static_cast<size_t>(token)] += bias;
    const std::vector<int> made = engine_.generate({both}).tokens[0];
    std::vector<int> seen = prompt_;
    seen.insert(seen.end(), made.begin(), made.begin() + i);
    std::ranges::sort(seen);
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int token : seen) {
      float& logit = row[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / 1.7F : logit * 1.7F;
    }
  });
}

TEST_F(ChosenTokens, AreOnlyThoseThatAreAllowed) {
  Request few = request();
  few.allowed_token_ids = {40, 9, 40, 77, 3};
  few.logit_bias = {{9, 0.5F}, {plain()[0], 100}};  // of which the latter is not allowed
  expect_argmax(few, [&](std::vector<float>& row, int64_t) {
    for (size_t token = 0; token < row.size(); ++token)
      if (std::ranges::count(few.allowed_token_ids, static_cast<int>(token)) == 0) row[token] = kNever;
    row[9] += 0.5F;
  });
  few.sampling = {.temperature = 99};
  std::vector<int> drawn = engine_.generate({few}).tokens[0];
  std::ranges::sort(drawn);
  EXPECT_GT(std::unique(drawn.begin(), drawn.end()) - drawn.begin(), 1);
  for (const int token : drawn) EXPECT_EQ(std::ranges::count(few.allowed_token_ids, token) > 0, true) << token;
}

// Of a bad word the last token is not made behind the others, which are made as ever, and which the prompt does not count for.
TEST_F(ChosenTokens, AreNoBadWords) {
  const std::vector<int> without = plain();
  Request bad = request();
  bad.bad_words = {{without[0]}, {prompt_.back(), without[1]}};
  bad.logit_bias = {{without[2], 0.5F}};
  for (int round = 0; round < 3; ++round) {  // what comes then is the next bad word
    const std::vector<int> made = engine_.generate({bad}).tokens[0];
    bad.bad_words.push_back({made.begin() + round, made.begin() + 3 + round});
  }
  const std::vector<int> made = engine_.generate({bad}).tokens[0];
  expect_argmax(bad, [&](std::vector<float>& row, int64_t i) {
    row[static_cast<size_t>(without[2])] += 0.5F;
    for (const std::vector<int>& word : bad.bad_words) {
      const auto others = static_cast<int64_t>(word.size()) - 1;
      if (others <= i && std::equal(word.begin(), word.end() - 1, made.begin() + i - others))
        row[static_cast<size_t>(word.back())] = kNever;
    }
  });
  for (const std::vector<int>& word : bad.bad_words)
    EXPECT_EQ(std::ranges::search(made, word).size(), 0U) << word.size();
  EXPECT_NE(made, without);
}

TEST_F(ChosenTokens, BadWordsAreRefusedWithWhatIsWanted) {
  Request bad = request();
  bad.bad_words = {{5}, {}};
  EXPECT_THAT(refusal(bad), HasSubstr("bad_words has one without tokens"));
  bad.bad_words = {{1, 1 << 20}};
  EXPECT_THAT(refusal(bad), HasSubstr("bad_words names the token 1048576, but the vocabulary has"));
  bad.bad_words.assign(2, std::vector<int>(150, 3));
  EXPECT_EQ(refusal(bad), "");
  bad.logit_bias = {{5, 1.0F}};
  EXPECT_THAT(refusal(bad), HasSubstr("bad_words has 300 tokens beside 1 of logit_bias, want at most 300 together"));
  bad.bad_words = {{5}, {6}, {7, 8}};
  bad.allowed_token_ids = {5, 6, 8};
  EXPECT_EQ(refusal(bad), "");
  bad.allowed_token_ids = {5, 6};
  EXPECT_THAT(refusal(bad), HasSubstr("each token that allowed_token_ids names is one of bad_words"));
}

// The log-probability of a token is the model's own, whatever was added to its logit.
TEST_F(ChosenTokens, AreAsProbableAsTheModelHoldsThem) {
  Request biased = request();
  biased.max_new_tokens = 1;
  biased.logprobs = true;
  biased.logit_bias = {{11, 100.0F}};
  const Generation generation = engine_.generate({biased});
  EXPECT_EQ(generation.tokens[0], std::vector<int>{11});
  double total = 0;
  for (int64_t v = 0; v < engine_.config().vocab_size; ++v) total += std::exp(static_cast<double>(engine_.logits()[v]));
  EXPECT_NEAR(generation.logprobs[0][0], engine_.logits()[11] - std::log(total), 1e-4);
}

TEST_F(ChosenTokens, OfOneRequestAreNotThoseOfAnother) {
  const std::vector<int> without = plain();
  Request biased = request(), ends = request();
  biased.logit_bias = {{without[0], -100}};
  const auto last = std::ranges::find(without, without[4]) - without.begin();
  ends.stop_token_ids = {without[4]};
  const Generation generation = engine_.generate({ends, request(), biased});
  EXPECT_EQ(generation.tokens[0], std::vector<int>(without.begin(), without.begin() + last + 1));
  EXPECT_EQ(generation.reasons[0], batch::kStopToken);
  EXPECT_EQ(generation.tokens[1], without);
  EXPECT_EQ(generation.reasons[1], batch::kLengthLimit);
  EXPECT_EQ(generation.tokens[2], engine_.generate({biased}).tokens[0]);
  EXPECT_NE(generation.tokens[2][0], without[0]);
  // Whoever comes into the place behind them has nothing of it.
  EXPECT_EQ(engine_.generate({request()}).tokens[0], without);
}

TEST_F(ChosenTokens, DoNotEndARequestBeforeItsLeastNumber) {
  const std::vector<int> without = plain();
  Request request = this->request();
  request.stop_token_ids = {without[2], without[0], 77};
  request.max_new_tokens = 60;
  for (const int64_t least : {1, 2, 5, 30}) {
    request.min_tokens = least;
    const std::vector<int> tokens = expect_argmax(request, [&](std::vector<float>& row, int64_t i) {
      if (i < least)
        for (const int token : request.stop_token_ids) row[static_cast<size_t>(token)] = kNever;
    });
    ASSERT_GE(static_cast<int64_t>(tokens.size()), least);
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      EXPECT_EQ(std::ranges::count(request.stop_token_ids, tokens[i]), 0) << i;
  }
}

TEST_F(ChosenTokens, AreRefusedWithWhatIsWanted) {
  Request wrong = request();
  wrong.stop_token_ids.assign(17, 1);
  EXPECT_THAT(refusal(wrong), HasSubstr("stop_token_ids has 17 tokens, want at most 16"));
  wrong.stop_token_ids = {1 << 20};
  EXPECT_THAT(refusal(wrong), HasSubstr("stop_token_ids names the token 1048576, but the vocabulary has"));
  wrong = request();
  wrong.min_tokens = kTokens + 1;
  EXPECT_THAT(refusal(wrong), HasSubstr("min_tokens is 13, want 0 to the 12 new tokens"));
  wrong.min_tokens = -1;
  EXPECT_THAT(refusal(wrong), HasSubstr("min_tokens is -1, want 0 to"));
  wrong = request();
  for (const float bias : {100.5F, -101.0F, std::numeric_limits<float>::quiet_NaN()}) {
    wrong.logit_bias = {{4, bias}};
    EXPECT_THAT(refusal(wrong), HasSubstr("logit_bias of the token 4 is"));
  }
  wrong.logit_bias = {{-1, 1.0F}};
  EXPECT_THAT(refusal(wrong), HasSubstr("logit_bias names the token -1, but the vocabulary has"));
  wrong.logit_bias.clear();
  for (int token = 0; token < 301; ++token) wrong.logit_bias[token] = 1;
  EXPECT_THAT(refusal(wrong), HasSubstr("logit_bias names 301 tokens, want at most 300"));
  wrong.logit_bias.erase(0);
  EXPECT_EQ(refusal(wrong), "");
  wrong = request();
  wrong.allowed_token_ids = {7, 1 << 20};
  EXPECT_THAT(refusal(wrong), HasSubstr("allowed_token_ids names the token 1048576"));
  wrong.allowed_token_ids = wrong.stop_token_ids = {7};
  EXPECT_EQ(refusal(wrong), "");
  wrong.min_tokens = 1;
  EXPECT_THAT(refusal(wrong), HasSubstr("each token that allowed_token_ids names ends the request"));
}

/// A model that ends its text early by itself.
class ChosenEnds : public ChosenTokens {
 protected:
  static std::vector<int> ends() {
    Engine engine(kModel, options_with({}));
    const Request request{.prompt = {5, 6, 7}, .max_new_tokens = kTokens, .ignore_stop_tokens = true};
    return {engine.generate({request}).tokens[0][3]};
  }
  ChosenEnds() : ChosenTokens(ends()), end_(ends()[0]) {}

  int end_;
};

TEST_F(ChosenEnds, OfTheModelWaitForTheLeastNumberToo) {
  Request request = this->request();
  request.ignore_stop_tokens = false;
  const Generation early = engine_.generate({request});
  EXPECT_EQ(early.tokens[0].back(), end_);
  EXPECT_EQ(early.reasons[0], batch::kStopToken);
  request.min_tokens = 7;
  const std::vector<int> tokens = expect_argmax(request, [&](std::vector<float>& row, int64_t i) {
    if (i < 7)
      for (const int end : engine_.stop_tokens()) row[static_cast<size_t>(end)] = kNever;
  });
  EXPECT_GE(tokens.size(), 7U);
}

// With ignore_stop_tokens the model's ends are tokens as others are, also before the least number of tokens; the request's own
// end it.
TEST_F(ChosenEnds, OfTheModelAreIgnoredAndItsOwnAreNot) {
  Request request = this->request();
  const std::vector<int> all = engine_.generate({request}).tokens[0];
  EXPECT_EQ(std::ranges::count(all, end_) > 0, true);
  request.min_tokens = kTokens;
  EXPECT_EQ(engine_.generate({request}).tokens[0], all);
  request.min_tokens = 0;
  request.stop_token_ids = {end_};
  const Generation ended = engine_.generate({request});
  EXPECT_EQ(ended.tokens[0].back(), end_);
  EXPECT_EQ(ended.reasons[0], batch::kStopToken);
}

// They come while the kernel runs, into places that others had; the token that ends a request comes with its end.
TEST_F(ChosenTokens, OfAServiceAreTheSame) {
  const std::vector<int> without = plain();
  std::vector<Request> requests(12, request());
  for (size_t r = 0; r < requests.size(); ++r) {
    if (r % 4 == 1) requests[r].logit_bias = {{without[r % 3], -100}, {without[1], 3}};
    if (r % 4 == 2) requests[r].stop_token_ids = {without[r / 2]}, requests[r].min_tokens = static_cast<int64_t>(r / 3);
    if (r % 4 == 3) requests[r].allowed_token_ids = {1, 2, without[0]}, requests[r].sampling.temperature = 5;
  }
  std::vector<Generation> alone;
  for (const Request& request : requests) alone.push_back(engine_.generate({request}));
  AsyncEngine service(engine_);
  ServiceResults results;
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(service.submit(request, results.sink()));
  for (size_t r = 0; r < requests.size(); ++r) {
    const ServiceResults::Result result = results.wait(ids[r]);
    EXPECT_EQ(result.tokens, alone[r].tokens[0]) << r;
    EXPECT_EQ(result.end, alone[r].reasons[0] == batch::kStopToken ? RequestEnd::stop : RequestEnd::length) << r;
    EXPECT_EQ(result.events_behind_end, 0) << r;
  }
}

}  // namespace
}  // namespace megalith::engine
