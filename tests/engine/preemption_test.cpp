// Requests that together want more pages than there are: they take each other's, go on where they were, and write what they
// do alone, to the last bit of their log-probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

#include "base/temporary_folder.h"
#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"
#include "support/configurations.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

#ifdef MEGALITH_SANITIZE
const size_t kMany = 60;
#else
const size_t kMany = test::all_configurations() ? 240 : 120;
#endif

EngineOptions options_with(int64_t places, int64_t pages, int64_t page_size = 16) {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_requests = places;
  options.decoder.max_seq_len = 128;
  options.decoder.max_pages = pages;
  options.decoder.page_size = page_size;
  return options;
}

Request long_request(uint64_t seed, int64_t max_new_tokens = 100) {
  std::mt19937_64 random(seed);
  Request request{.max_new_tokens = max_new_tokens, .ignore_stop_tokens = true, .logprobs = true};
  for (int i = 0; i < 10; ++i) request.prompt.push_back(300 + static_cast<int>(random() % 1000));
  return request;
}

void expect_same(const ServiceResults::Result& result, const Generation& alone, size_t r) {
  EXPECT_EQ(result.tokens, alone.tokens[0]) << "request " << r;
  EXPECT_EQ(result.logprobs, alone.logprobs[0]) << "request " << r;
  EXPECT_EQ(result.end, alone.reasons[0] == batch::kStopToken ? RequestEnd::stop : RequestEnd::length) << r;
  EXPECT_EQ(result.events_behind_end, 0) << r;
  EXPECT_EQ(result.times_admitted, 1) << r;
}

ServiceLoad expect_same_as_alone(const EngineOptions& options, const std::vector<Request>& requests,
                                 const AsyncEngineOptions& service_options = {}) {
  Engine engine(test::kStoryteller, options);
  std::vector<Generation> alone;
  for (const Request& request : requests) alone.push_back(engine.generate({request}));
  AsyncEngine service(engine, service_options);
  const std::vector<ServiceResults::Result> results = serve_together(service, requests);
  for (size_t r = 0; r < requests.size(); ++r) expect_same(results[r], alone[r], r);
  const ServiceLoad load = settled(service);
  EXPECT_EQ(load.pages_used, 0);
  service.clear_prefix_cache();
  EXPECT_EQ(service.load().pages_kept, 0);
  EXPECT_EQ(service.load().pages_used, 0);
  return load;
}

// With as many pages as there may be, nobody waits for any. A page holds few tokens, so that there are many to give.
TEST(Preemption, IsNotWantedWhereThereArePages) {
  const std::vector<Request> requests = {long_request(1), long_request(2), long_request(3)};
  const ServiceLoad load = expect_same_as_alone(options_with(3, 0, 4), requests);
  EXPECT_EQ(load.preemptions, 0U);
}

// Each takes 7 pages in the end; two have room at their beginning, and one at its end.
TEST(Preemption, IsNotSeenByItsRequest) {
  for (const bool keeps : {true, false}) {
    const ServiceLoad load = expect_same_as_alone(
        options_with(3, 8), {long_request(1), long_request(2), long_request(3)}, {.prefix_cache = keeps});
    EXPECT_GT(load.preemptions, 0U);
    EXPECT_EQ(load.prompt_tokens, 30U);
    EXPECT_EQ(load.generated_tokens, 300U);
  }
}

// Random numbers, penalties of tokens in the prompt and of those that were made: all of them know where they are.
TEST(Preemption, ChangesNothingOfWhatIsDrawn) {
  std::vector<Request> requests = {long_request(1), long_request(1), long_request(1), long_request(1)};
  for (size_t r = 0; r < requests.size(); ++r)
    requests[r].sampling = {.temperature = 0.9F, .top_p = 0.95F, .seed = 100 + r};
  requests[1].sampling.repetition_penalty = 1.3F;
  requests[2].sampling.presence_penalty = 0.8F;
  requests[3].sampling.frequency_penalty = 0.5F;
  // One that cannot end before it was preempted, by a token that it would have had at its beginning.
  Engine engine(test::kStoryteller, options_with(4, 9));
  requests[0].stop_token_ids = {engine.generate({requests[0]}).tokens[0][1]}, requests[0].min_tokens = 95;
  requests[1].logit_bias = {{engine.generate({requests[1]}).tokens[0][80], -100.0F}, {300, 3.0F}};
  std::ranges::reverse(requests);  // the last ones are preempted
  EXPECT_GT(expect_same_as_alone(options_with(4, 9), requests).preemptions, 1U);
  std::ranges::reverse(requests);
  EXPECT_GT(expect_same_as_alone(options_with(4, 9), requests).preemptions, 1U);
}

// Kernels of 1, 3 and 8 tokens take turns meanwhile.
TEST(Preemption, IsNotSeenInSeveralKernels) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  EngineOptions options = options_with(3, 8);
  options.decoder.max_rows = 8;
  options.regimes = {1, 3};
  EXPECT_GT(expect_same_as_alone(options, {long_request(1), long_request(2), long_request(3)}).preemptions, 0U);
}

// Drafts are worked on only as far as there are pages for them.
TEST(Preemption, IsNotSeenWithDrafts) {
  EngineOptions options = options_with(3, 8);
  options.decoder.draft_tokens = 4;
  options.decoder.draft_match = 1;
  const ServiceLoad load = expect_same_as_alone(options, {long_request(1), long_request(2), long_request(3)});
  EXPECT_GT(load.preemptions, 0U);
  EXPECT_GT(load.accepted_tokens, 0U);
  EXPECT_EQ(std::accumulate(load.accepted_at.begin(), load.accepted_at.end(), uint64_t{0}), load.accepted_tokens);
  EXPECT_TRUE(std::ranges::is_sorted(load.accepted_at, std::greater()));  // those behind a wrong one are none
  EXPECT_LE(load.accepted_at[0], load.drafts);
}

// Those of a draft model are, too: its cache is on the same pages, so it knows again what the other model does.
TEST(Preemption, IsNotSeenWithADraftModel) {
  EngineOptions options = options_with(3, 8);
  options.draft_model = test::kStoryteller;
  options.decoder.draft_tokens = 2;
  const ServiceLoad load = expect_same_as_alone(options, {long_request(1), long_request(2), long_request(3)});
  EXPECT_GT(load.preemptions, 0U);
  EXPECT_GT(load.accepted_tokens, 50U);
}

// A request that nobody else is in the way of.
TEST(Preemption, IsNotOfOneThatIsAlone) {
  EXPECT_EQ(expect_same_as_alone(options_with(3, 8), {long_request(1, 118)}).preemptions, 0U);
  Engine engine(test::kStoryteller, options_with(3, 7));
  AsyncEngine service(engine);
  EXPECT_THROW(service.submit(long_request(1, 118), {}), UserError) << "8 pages";
}

TEST(Preemption, SparesThoseOfHigherPriority) {
  Engine engine(test::kStoryteller, options_with(2, 8));
  AsyncEngine service(engine);
  ServiceResults results;
  Request first = long_request(1), second = long_request(2), third = long_request(3);
  first.priority = 1, third.priority = -1;
  const RequestSink record = results.sink();
  std::vector<RequestId> ended;
  std::latch all_ended{3};
  const RequestSink sink = [&](RequestId id, const RequestEvent& event) {
    if (id == 1 && event.admitted_ns > 0)
      for (const Request& request : {second, third}) service.submit(request, sink);
    record(id, event);
    if (event.end == RequestEnd::none) return;
    ended.push_back(id);
    all_ended.count_down();
  };
  EXPECT_EQ(service.submit(first, sink), 1U);
  all_ended.wait();
  // The second one overtakes the first, and the third takes the place that comes free, or the second one's.
  EXPECT_THAT(ended, ::testing::ElementsAre(2, 3, 1));
  for (const RequestId id : ended) EXPECT_EQ(results.wait(id).tokens.size(), 100U);
  EXPECT_GT(settled(service).preemptions, 0U);
}

TEST(Preemption, IsNoEndThatCannotBeAborted) {
  Engine engine(test::kStoryteller, options_with(3, 8));
  const Generation alone = engine.generate({long_request(1)});
  AsyncEngine service(engine);
  ServiceResults results;
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(service.submit(long_request(1), results.sink()));
  // Whether it stands still for want of pages, waits again, or makes tokens.
  for (size_t r = 1; r < ids.size(); ++r) {
    results.wait(ids[r], 20 * r);
    service.abort(ids[r]);
  }
  for (size_t r = 0; r < ids.size(); ++r) {
    const ServiceResults::Result result = results.wait(ids[r]);
    EXPECT_TRUE(result.end == RequestEnd::aborted || result.tokens.size() == 100U);
    EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(), alone.tokens[0].begin()));
    EXPECT_EQ(result.events_behind_end, 0);
  }
  EXPECT_EQ(results.wait(ids[0]).end, RequestEnd::length);
  EXPECT_EQ(settled(service).pages_used, 0);
}

// The kernel makes more tokens than it has pages for before the host looks, and stops; what the host says meanwhile comes too late.
TEST(Preemption, IsNotThatOfALateHost) {
  Engine engine(test::kStoryteller, options_with(3, 0, 4));
  const Generation alone = engine.generate({long_request(1)});
  AsyncEngine service(engine);
  ServiceResults results;
  const RequestSink record = results.sink();
  int events = 0;
  const RequestSink sleepy = [&](RequestId id, const RequestEvent& event) {
    if (++events % 20 == 5) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    record(id, event);
  };
  const RequestId one = service.submit(long_request(1), sleepy), two = service.submit(long_request(1), sleepy);
  expect_same(results.wait(one), alone, 0);
  expect_same(results.wait(two), alone, 1);
  EXPECT_EQ(settled(service).preemptions, 0U);
  EXPECT_EQ(service.load().pages_used, 0);
}

/// Some begin with the same few tokens, of which some are another answer gone on from.
std::vector<Request> requests_of_all_kinds(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  std::vector<std::vector<int>> beginnings(4);
  for (auto& beginning : beginnings)
    for (int i = 20 + below(20); i > 0; --i) beginning.push_back(300 + below(1000));
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    if (below(4) > 0) {
      const std::vector<int>& beginning = beginnings[static_cast<size_t>(below(4))];
      request.prompt.assign(beginning.begin(), beginning.end() - below(8));
    }
    for (int i = 1 + below(15); i > 0; --i) request.prompt.push_back(300 + below(1000));
    const bool is_long = below(2) == 0;
    request.max_new_tokens = is_long ? 70 : 1 + below(40);
    request.ignore_stop_tokens = is_long || below(2) == 0;
    request.logprobs = true;
    if (below(2) == 0) request.sampling = {.temperature = 0.8F, .top_p = 0.9F, .seed = random()};
    if (below(3) == 0) request.sampling.presence_penalty = 0.6F;
    if (below(4) == 0) request.sampling.repetition_penalty = 1.2F;
    if (below(8) == 0) request.cache_salt = "salt";
  }
  return requests;
}

// Some are aborted; those have made the first of the tokens that they would have. What is made alone does not depend on pages.
TEST(Preemption, IsNotSeenByManyRequests) {
  std::vector<Request> requests = requests_of_all_kinds(kMany, 7);
  std::vector<Generation> alone;
  uint64_t preemptions = 0;
  for (const int64_t page_size : {4, 16}) {
    Engine engine(test::kStoryteller, options_with(6, 10 * 16 / page_size, page_size));
    for (size_t r = alone.size(); r < requests.size(); ++r) alone.push_back(engine.generate({requests[r]}));
    AsyncEngine service(engine);
    ServiceResults results;
    std::vector<char> is_aborted(requests.size());
    const std::vector<RequestId> ids =
        submit_side_by_side(service, requests, results, [&](size_t r, RequestId id, std::mt19937_64& random) {
          if (random() % 4 != 0) return;
          results.wait(id, random() % 30);
          service.abort(id);
          is_aborted[r] = 1;
        });
    size_t num_whole = 0;
    for (size_t r = 0; r < requests.size(); ++r) {
      const ServiceResults::Result result = results.wait(ids[r]);
      num_whole += result.end != RequestEnd::aborted;
      if (!is_aborted[r] || result.end != RequestEnd::aborted) {
        expect_same(result, alone[r], r);
        continue;
      }
      EXPECT_LE(result.tokens.size(), alone[r].tokens[0].size());
      EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(), alone[r].tokens[0].begin())) << r;
      EXPECT_TRUE(std::equal(result.logprobs.begin(), result.logprobs.end(), alone[r].logprobs[0].begin())) << r;
    }
    EXPECT_GT(num_whole, requests.size() / 2);
    const ServiceLoad load = settled(service);
    preemptions += load.preemptions;
    EXPECT_GT(load.prefix_hits, requests.size());
    EXPECT_EQ(load.pages_used, 0);
    service.clear_prefix_cache();
    EXPECT_EQ(service.load().pages_kept, 0);
    EXPECT_EQ(service.load().pages_used, 0);
    requests.resize(kMany / 3);
  }
  EXPECT_GT(preemptions, 0U);
}

}  // namespace
}  // namespace megalith::engine
