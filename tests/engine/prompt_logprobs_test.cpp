// How likely the tokens of a prompt are: by the model's own logits, beside requests that do not ask, in pieces of any size, with
// drafts, and from a service that keeps pages, takes them away, and is left.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/model_logprobs.h"
#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

EngineOptions telling_options(int64_t max_requests, int64_t draft_tokens = 0) {
  EngineOptions options{.num_workers = 2, .regimes = std::vector<int64_t>{}, .prompt_rows = 0};
  options.decoder.max_seq_len = 128;
  options.decoder.max_requests = max_requests;
  options.decoder.max_rows = 24;
  options.decoder.draft_tokens = draft_tokens;
  return options;
}

std::vector<int> tokens_below(int vocabulary, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> tokens(count);
  for (int& token : tokens) token = static_cast<int>(random() % static_cast<uint64_t>(vocabulary));
  return tokens;
}

/// Prompts of several lengths; every other one asks, and some of those for lists of other lengths than of what they make.
std::vector<Request> some_requests() {
  std::vector<Request> requests;
  for (const size_t length : {30, 41, 1, 17, 2, 60}) {
    const size_t r = requests.size();
    // The first two repeat themselves, and are longest at work, so that there are drafts: not beside a prompt.
    Request request{
        .prompt = tokens_below(60, length, r), .max_new_tokens = r < 2 ? 40 : 8, .ignore_stop_tokens = true};
    for (size_t i = 4; i < length && r < 2; ++i) request.prompt[i] = request.prompt[i - 4];
    if (r % 2 == 0) request.prompt_logprobs = r == 0 ? 5 : 0;
    if (r == 5) request.prompt_logprobs = 2;
    if (r >= 3) request.logprobs = true, request.top_logprobs = 3;
    if (r % 3 == 0) request.sampling = {.temperature = 0.8F, .presence_penalty = 1, .seed = r};
    requests.push_back(request);
  }
  return requests;
}

void expect_same(const Generation& all, size_t r, const Generation& wanted) {
  EXPECT_EQ(all.tokens[r], wanted.tokens[0]) << r;
  EXPECT_EQ(all.logprobs[r], wanted.logprobs[0]) << r;
  EXPECT_EQ(all.top[r], wanted.top[0]) << r;
  EXPECT_EQ(all.prompt_logprobs[r], wanted.prompt_logprobs[0]) << r;
}

TEST(PromptLogprobs, AreThoseOfTheModelsLogits) {
  Engine engine(test::kTinyModel, telling_options(3));
  Request request{.prompt = tokens_below(60, 20, 3), .max_new_tokens = 1, .prompt_logprobs = 4};
  const Generation all = engine.generate({request});
  const std::vector<PromptLogprob>& told = all.prompt_logprobs[0];
  ASSERT_EQ(told.size(), request.prompt.size() - 1);
  EXPECT_EQ(all.tokens[0].size(), 1u);
  EXPECT_TRUE(all.logprobs[0].empty());
  EXPECT_TRUE(all.top[0].empty());
  for (size_t i = 0; i < told.size(); ++i) {
    const Request cut{.prompt = {request.prompt.begin(), request.prompt.begin() + static_cast<long>(i) + 1},
                      .max_new_tokens = 1};
    engine.generate({cut});
    const ModelLogprobs model(engine);
    EXPECT_NEAR(told[i].logprob, model.of(request.prompt[i + 1]), 1e-5) << i;
    ASSERT_EQ(told[i].top.size(), 4u);
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(told[i].top[k].token, model.number(k)) << i << ", rank " << k;
      EXPECT_NEAR(told[i].top[k].logprob, model.of(model.number(k)), 1e-5) << i << ", rank " << k;
    }
  }
}

// What is made is what is made of a request that does not ask. With six samples a prompt goes through in large pieces, with one
// token by token.
TEST(PromptLogprobs, AreTheSameInABatchAndInPieces) {
  const std::vector<Request> requests = some_requests();
  Engine engine(test::kTinyModel, telling_options(6)), single(test::kTinyModel, telling_options(1)),
      drafting(test::kTinyModel, telling_options(6, 3));
  std::vector<Generation> alone;
  for (size_t r = 0; r < requests.size(); ++r) {
    alone.push_back(engine.generate({requests[r]}));
    const bool asks = requests[r].prompt_logprobs.has_value();
    ASSERT_EQ(alone[r].prompt_logprobs[0].size(), asks ? requests[r].prompt.size() - 1 : 0);
    for (const PromptLogprob& one : alone[r].prompt_logprobs[0])
      EXPECT_EQ(one.top.size(), static_cast<size_t>(*requests[r].prompt_logprobs));
    for (const std::vector<TopToken>& top : alone[r].top[0]) EXPECT_EQ(top.size(), 3u);
    Request silent = requests[r];
    silent.prompt_logprobs.reset();
    EXPECT_EQ(engine.generate({silent}).tokens, alone[r].tokens);
    expect_same(single.generate({requests[r]}), 0, alone[r]);
    expect_same(drafting.generate({requests[r]}), 0, alone[r]);
  }
  const Generation together = engine.generate(requests), drafted = drafting.generate(requests);
  EXPECT_GT(drafted.drafted, 0u);
  for (size_t r = 0; r < requests.size(); ++r) {
    expect_same(together, r, alone[r]);
    expect_same(drafted, r, alone[r]);
  }
}

// A kernel of fewer rows has fewer samples, too.
TEST(PromptLogprobs, AreThoseOfEachKernelOfAnEngine) {
  EngineOptions options = telling_options(6);
  options.regimes = {2};
  options.decoder.max_rows = 8;
  options.prompt_rows = 32;
  Engine engine(test::kTinyModel, options), plain(test::kTinyModel, telling_options(6));
  const std::vector<Request> requests = some_requests();
  const Generation all = engine.generate({requests[0], requests[1], requests[4]});
  EXPECT_EQ(all.regimes.front(), 32);
  EXPECT_EQ(all.regimes.back(), 2);
  for (const size_t r : {0, 4}) {
    const Generation wanted = plain.generate({requests[r]});
    const std::vector<PromptLogprob>& told = all.prompt_logprobs[r == 0 ? 0 : 2];
    ASSERT_EQ(told.size(), wanted.prompt_logprobs[0].size());
    for (size_t i = 0; i < told.size(); ++i)
      EXPECT_NEAR(told[i].logprob, wanted.prompt_logprobs[0][i].logprob, 1e-4) << r << ", token " << i;
  }
}

/// Requests of a service that all come before the first one ends, each as it is alone.
ServiceLoad expect_served_as_alone(const EngineOptions& options, const std::vector<Request>& requests) {
  Engine engine(test::kStoryteller, options);
  std::vector<Generation> alone;
  for (const Request& request : requests) alone.push_back(engine.generate({request}));
  AsyncEngine service(engine);
  const std::vector<ServiceResults::Result> results = serve_together(service, requests);
  for (size_t r = 0; r < requests.size(); ++r) {
    EXPECT_EQ(results[r].tokens, alone[r].tokens[0]) << r;
    EXPECT_EQ(results[r].prompt_logprobs, alone[r].prompt_logprobs[0]) << r;
  }
  return settled(service);
}

Request story_request(size_t length, uint64_t seed, int64_t max_new_tokens = 6) {
  std::vector<int> prompt = tokens_below(1000, length, seed);
  for (int& token : prompt) token += 300;
  return {.prompt = prompt, .max_new_tokens = max_new_tokens, .ignore_stop_tokens = true, .prompt_logprobs = 1};
}

TEST(PromptLogprobs, AreThereWithTheFirstToken) {
  std::vector<Request> requests;
  for (size_t r = 0; r < 12; ++r) {
    requests.push_back(story_request(1 + 9 * r % 70, r));
    if (r % 3 == 2) requests.back().prompt_logprobs.reset();
  }
  expect_served_as_alone(telling_options(4), requests);
  expect_served_as_alone(telling_options(4, 3), requests);
}

// One that is preempted in its prompt is told all of it again; behind its first token it has been told.
TEST(PromptLogprobs, AreWholeBehindAPreemption) {
  EngineOptions options = telling_options(2);
  options.decoder.max_pages = 11;
  // The first one wants more than the 4 pages that the second leaves it, which has a hundred iterations to go then.
  EXPECT_GT(expect_served_as_alone(options, {story_request(10, 1, 100), story_request(100, 2)}).preemptions, 0U);
  EXPECT_GT(expect_served_as_alone(options, {story_request(10, 1, 100), story_request(12, 2, 100)}).preemptions, 0U);
}

// A prompt that others have worked through is worked through again, and nobody else has to.
TEST(PromptLogprobs, AreNotSparedByThePrefixCache) {
  Engine engine(test::kStoryteller, telling_options(3));
  const Request telling = story_request(50, 8);
  Request silent = telling;
  silent.prompt_logprobs.reset();
  const std::vector<PromptLogprob> wanted = engine.generate({telling}).prompt_logprobs[0];
  AsyncEngine service(engine);
  ServiceResults results;
  const Request* const order[] = {&telling, &silent, &telling, &silent};
  const int64_t cached[] = {0, 48, 0, 48};
  for (size_t r = 0; r < 4; ++r) {
    const ServiceResults::Result result = results.wait(service.submit(*order[r], results.sink()));
    EXPECT_EQ(result.cached_tokens, cached[r]) << r;
    EXPECT_EQ(result.prompt_logprobs, r % 2 == 0 ? wanted : std::vector<PromptLogprob>()) << r;
  }
}

TEST(PromptLogprobs, AreNotWaitedForBehindAnAbort) {
  Engine engine(test::kStoryteller, telling_options(2));
  const Request telling = story_request(100, 9), other = story_request(30, 10);
  const Generation wanted = engine.generate({other});
  AsyncEngine service(engine);
  ServiceResults results;
  for (int i = 0; i < 20; ++i) {
    const RequestId left = service.submit(telling, results.sink());
    const RequestId stays = service.submit(other, results.sink());
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
    service.abort(left);
    EXPECT_EQ(results.wait(stays).prompt_logprobs, wanted.prompt_logprobs[0]) << i;
    results.wait(left);
  }
  EXPECT_EQ(settled(service).pages_used, 0);
}

TEST(PromptLogprobs, AreRefusedWithWhatIsWanted) {
  Engine engine(test::kTinyModel, telling_options(3));
  for (const int wrong : {-1, batch::kMaxTop + 1}) {
    Request request = some_requests()[0];
    request.prompt_logprobs = wrong;
    try {
      engine.generate({request});
      ADD_FAILURE() << wrong;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("prompt_logprobs is {}, want 0 to 20", wrong)),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace megalith::engine
