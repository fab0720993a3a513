// Requests that begin with the same tokens, of which only the first works through them: they write what they do alone, to
// the last bit of their log-probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/service_results.h"
#include "megalith/engine/async_engine.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using ::testing::ElementsAre;

EngineOptions sharing_options() {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_requests = 3;
  options.decoder.max_seq_len = 128;
  return options;
}

std::vector<int> some_tokens(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> tokens(count);
  for (int& token : tokens) token = 300 + static_cast<int>(random() % 1000);
  return tokens;
}

Request request_of(std::vector<int> prompt, int64_t max_new_tokens = 6) {
  return {.prompt = std::move(prompt), .max_new_tokens = max_new_tokens, .ignore_stop_tokens = true, .logprobs = true};
}

/// Requests one behind the other, of each the tokens that need not be worked through.
std::vector<int64_t> cached_tokens(const std::vector<Request>& requests,
                                   const AsyncEngineOptions& service_options = {}) {
  Engine engine(test::kStoryteller, sharing_options());
  std::vector<Generation> alone;
  for (const Request& request : requests) alone.push_back(engine.generate({request}));
  AsyncEngine service(engine, service_options);
  ServiceResults results;
  std::vector<int64_t> cached;
  uint64_t queries = 0, hits = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const ServiceResults::Result result = results.wait(service.submit(requests[r], results.sink()));
    EXPECT_EQ(result.tokens, alone[r].tokens[0]) << "request " << r;
    EXPECT_EQ(result.logprobs, alone[r].logprobs[0]) << "request " << r;
    cached.push_back(result.cached_tokens);
    queries += requests[r].prompt.size(), hits += static_cast<uint64_t>(result.cached_tokens);
  }
  ServiceLoad load = settled(service);
  EXPECT_EQ(load.prefix_queries, service_options.prefix_cache ? queries : 0);
  EXPECT_EQ(load.prefix_hits, hits);
  EXPECT_EQ(load.pages_used, 0);
  EXPECT_EQ(load.pages_kept > 0, service_options.prefix_cache);
  service.clear_prefix_cache();
  load = service.load();
  EXPECT_EQ(load.pages_kept, 0);
  EXPECT_EQ(load.pages_used, 0);
  return cached;
}

// Whole pages, and never the last token: what comes behind it is yet to be worked out.
TEST(SharedPrefix, IsNotWorkedThroughAgain) {
  const std::vector<int> tokens = some_tokens(60, 1);
  const auto first = [&](size_t count) {
    return request_of({tokens.begin(), tokens.begin() + static_cast<long>(count)});
  };
  EXPECT_THAT(cached_tokens({first(60), first(60), first(49), first(48), first(33), first(17), first(16), first(5)}),
              ElementsAre(0, 48, 48, 32, 32, 16, 0, 0));
}

// The answer of a request is known, too, but for its last token, which nothing followed.
TEST(SharedPrefix, IsAlsoAnAnswer) {
  const std::vector<int> prompt = some_tokens(20, 2);
  Engine engine(test::kStoryteller, sharing_options());
  std::vector<Request> requests;
  for (const int64_t made : {28, 29}) {  // 48 tokens, of which 47 have keys, and one more
    std::vector<int> turn = prompt;
    const std::vector<int> answer = engine.generate({request_of(prompt, made)}).tokens[0];
    turn.insert(turn.end(), answer.begin(), answer.end());
    turn.insert(turn.end(), {700, 701, 702});
    requests = {request_of(prompt, made), request_of(turn)};
    EXPECT_THAT(cached_tokens(requests), ElementsAre(0, made == 28 ? 32 : 48));
  }
}

TEST(SharedPrefix, IsOfOneSalt) {
  const Request plain = request_of(some_tokens(40, 3));
  Request mine = plain, theirs = plain;
  mine.cache_salt = "mine";
  theirs.cache_salt = "theirs";
  EXPECT_THAT(cached_tokens({plain, mine, theirs, mine, plain}), ElementsAre(0, 0, 0, 32, 32));
}

TEST(SharedPrefix, IsWorkedThroughAgainWithoutACache) {
  const Request request = request_of(some_tokens(40, 4));
  EXPECT_THAT(cached_tokens({request, request}, {.prefix_cache = false}), ElementsAre(0, 0));
}

// As soon as a first token was made: the others do not wait for the answer's end.
TEST(SharedPrefix, IsKnownWhileItIsGoneOnFrom) {
  Engine engine(test::kStoryteller, sharing_options());
  const Request request = request_of(some_tokens(40, 5), 80);
  const Generation alone = engine.generate({request});
  AsyncEngine service(engine);
  ServiceResults results;
  const RequestId first = service.submit(request, results.sink());
  results.wait(first, 1);
  const RequestId second = service.submit(request, results.sink()), third = service.submit(request, results.sink());
  results.wait(second, 2);
  EXPECT_LE(service.load().pages_used, 3 * 8 - 2 * 2);
  service.abort(second);
  for (const RequestId id : {first, third}) {
    EXPECT_EQ(results.wait(id).tokens, alone.tokens[0]);
    EXPECT_EQ(results.wait(id).logprobs, alone.logprobs[0]);
  }
  EXPECT_EQ(results.wait(first).cached_tokens, 0);
  EXPECT_EQ(results.wait(second).cached_tokens, 32);
  EXPECT_EQ(results.wait(third).cached_tokens, 32);
  EXPECT_EQ(settled(service).pages_used, 0);
}

// What an aborted request has filled may be less than it says.
TEST(SharedPrefix, IsNotThatOfAnAbortedRequest) {
  Engine engine(test::kStoryteller, sharing_options());
  AsyncEngine service(engine);
  ServiceResults results;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const RequestId id = service.submit(request_of(some_tokens(20, 6), 100), results.sink());
    results.wait(id, 40);
    service.abort(id);
    if (results.wait(id).end == RequestEnd::aborted) {
      EXPECT_EQ(settled(service).pages_kept, 1) << "the prompt's, which was known before";
      return;
    }
    settled(service);  // it was faster
    service.clear_prefix_cache();
  }
  FAIL() << "none could be aborted";
}

}  // namespace
}  // namespace megalith::engine
