// Requests that come and go while a GPU's kernel runs.
#include "megalith/engine/async_engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "cuda/skip.h"
#include "support/models.h"

namespace megalith {
namespace {

using engine::RequestEnd;
using engine::RequestEvent;
using engine::RequestId;
using std::chrono::milliseconds;

/// A request's tokens, and a promise of its end.
struct Client {
  std::vector<int> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<engine::TopToken>> top;
  std::promise<RequestEnd> promise;
  std::future<RequestEnd> end = promise.get_future();
  size_t wanted = ~size_t{0};  // tokens after which it hangs up

  RequestId submit(engine::AsyncEngine& service, const engine::Request& request) {
    return service.submit(request, [this, &service](RequestId id, const RequestEvent& event) {
      if (event.token >= 0) {
        tokens.push_back(event.token);
        logprobs.push_back(event.logprob);
        if (!event.top.empty()) top.push_back(event.top);
      }
      if (tokens.size() == wanted) service.abort(id);
      if (event.end != RequestEnd::none) promise.set_value(event.end);
    });
  }
};

std::vector<engine::Request> random_requests(size_t count) {
  std::mt19937_64 random(3);
  std::vector<engine::Request> requests(count);
  for (engine::Request& request : requests) {
    for (size_t i = 1 + random() % 60; i > 0; --i) request.prompt.push_back(static_cast<int>(300 + random() % 1000));
    request.max_new_tokens = 1 + static_cast<int64_t>(random() % 60);
    request.ignore_stop_tokens = true;
    if (random() % 2 == 0) request.sampling = {.temperature = 0.8F, .top_p = 0.9F, .seed = random()};
    // Of tokens that a text has often, some are less likely, and some would end it if that were not too early.
    const auto some_tokens = [&](auto take) {
      for (size_t i = random() % 3 == 0 ? 16 : 0; i > 0; --i) take(250 + static_cast<int>(random() % 100));
    };
    some_tokens([&](int token) { request.logit_bias[token] = static_cast<float>(random() % 9) - 4; });
    some_tokens([&](int token) { request.stop_token_ids.push_back(token); });
    if (!request.stop_token_ids.empty()) request.min_tokens = request.max_new_tokens;
    if (random() % 3 == 0) request.top_logprobs = static_cast<int>(random() % (batch::kMaxTop + 1));
  }
  return requests;
}

void expect_service(const engine::EngineOptions& options, bool same_bits) {
  const std::vector<engine::Request> requests = random_requests(150);
  engine::Engine engine(test::kStoryteller, options);
  std::vector<std::vector<int>> alone;
  if (same_bits)
    for (const engine::Request& request : requests) alone.push_back(engine.generate({request}).tokens[0]);
  engine::AsyncEngine service(engine);
  for (int round = 0; round < 3; ++round) {
    std::vector<Client> clients(requests.size());
    std::mt19937_64 random(static_cast<uint64_t>(round));
    for (size_t r = 0; r < requests.size(); ++r) {
      if (r % 5 == 4) clients[r].wanted = 1 + random() % 20;
      clients[r].submit(service, requests[r]);
      if (random() % 4 == 0) std::this_thread::sleep_for(milliseconds(random() % 20));
    }
    for (size_t r = 0; r < requests.size(); ++r) {
      ASSERT_EQ(clients[r].end.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "request " << r;
      const RequestEnd end = clients[r].end.get();
      const auto tokens = static_cast<size_t>(requests[r].max_new_tokens);
      EXPECT_TRUE(end == RequestEnd::length || end == RequestEnd::aborted) << r;
      EXPECT_TRUE(clients[r].wanted <= tokens || end == RequestEnd::length) << r;
      EXPECT_GE(clients[r].tokens.size(), end == RequestEnd::length ? tokens : clients[r].wanted) << r;
      if (!same_bits) continue;
      const std::vector<int>& wanted = alone[r];
      ASSERT_LE(clients[r].tokens.size(), wanted.size());
      EXPECT_TRUE(std::equal(clients[r].tokens.begin(), clients[r].tokens.end(), wanted.begin())) << "request " << r;
    }
    std::this_thread::sleep_for(milliseconds(500));  // without a request
    EXPECT_EQ(service.load().running, 0);
    EXPECT_EQ(service.load().pages_used, 0);
  }
}

TEST(CudaAsyncEngine, WritesWhatRequestsAloneDo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  expect_service({.decoder = {.max_rows = 16, .max_requests = 12, .max_seq_len = 256}, .target = "cuda"}, true);
}

/// Each alone, and then all of them at once, twice: to the last bit the same. What became of pages.
engine::ServiceLoad expect_same_bits(const engine::EngineOptions& options,
                                     const std::vector<engine::Request>& requests) {
  engine::Engine engine(test::kStoryteller, options);
  std::vector<engine::Generation> alone;
  for (const engine::Request& request : requests) alone.push_back(engine.generate({request}));
  engine::AsyncEngine service(engine);
  for (int round = 0; round < 2; ++round) {
    std::vector<Client> clients(requests.size());
    for (size_t r = 0; r < requests.size(); ++r) clients[r].submit(service, requests[r]);
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_EQ(clients[r].end.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "request " << r;
      EXPECT_EQ(clients[r].tokens, alone[r].tokens[0]) << "request " << r;
      EXPECT_EQ(clients[r].logprobs, alone[r].logprobs[0]) << "request " << r;
      EXPECT_EQ(clients[r].top, alone[r].top[0]) << "request " << r;
    }
  }
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(service.load().pages_used, 0);
  return service.load();
}

// Two thirds of the prompts begin with one of two times 100 tokens.
TEST(CudaAsyncEngine, SharesTheFirstTokensOfPrompts) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::vector<engine::Request> requests = random_requests(60);
  for (size_t r = 0; r < requests.size(); ++r) {
    requests[r].logprobs = true;
    if (r % 3 == 0) continue;
    std::vector<int> common(100, 400 + static_cast<int>(r % 2));
    for (size_t i = 0; i < common.size(); ++i) common[i] += static_cast<int>(3 * i);
    requests[r].prompt.insert(requests[r].prompt.begin(), common.begin(), common.end());
  }
  const engine::ServiceLoad load = expect_same_bits(
      {.decoder = {.max_rows = 16, .max_requests = 12, .max_seq_len = 256}, .target = "cuda"}, requests);
  EXPECT_GT(load.prefix_hits, load.prefix_queries / 3);
  EXPECT_EQ(load.preemptions, 0U);
}

// 40 pages of 16 tokens, where twelve requests of 10 tokens and 150 more take 120.
TEST(CudaAsyncEngine, GoesOnWithPagesThatAnotherOneGivesBack) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::vector<engine::Request> requests = random_requests(30);
  for (size_t r = 0; r < requests.size(); ++r) {
    requests[r].prompt.resize(10, 500);
    requests[r].max_new_tokens = 150;
    requests[r].logprobs = true;
    if (r % 3 == 0) requests[r].sampling.presence_penalty = 0.5F;
  }
  engine::EngineOptions options{.decoder = {.max_rows = 16, .max_requests = 12, .max_seq_len = 256}, .target = "cuda"};
  options.decoder.max_pages = 40;
  EXPECT_GT(expect_same_bits(options, requests).preemptions, 0U);
}

TEST(CudaAsyncEngine, ServesByTheKernelsOfEachLoad) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  expect_service({.decoder = {.max_requests = 64, .max_seq_len = 256}, .target = "cuda"}, false);
}

}  // namespace
}  // namespace megalith
