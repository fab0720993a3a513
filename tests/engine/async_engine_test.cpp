// Requests that come and go while one kernel runs, against the same requests alone.
#include "megalith/engine/async_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/temporary_folder.h"
#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kPlaces = 3;

EngineOptions usual_options() {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_requests = kPlaces;
  options.decoder.max_seq_len = 128;
  return options;
}

/// Prompts of 1 to 30 tokens, some sampled, some greedy, of 1 to 40 new tokens.
std::vector<Request> random_requests(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    for (int i = 1 + below(30); i > 0; --i) request.prompt.push_back(300 + below(1000));
    request.max_new_tokens = 1 + below(40);
    request.ignore_stop_tokens = below(2) == 0;
    if (below(2) == 0) request.sampling = {.temperature = 0.8F, .top_p = 0.9F, .seed = random()};
    for (int i = 10 * below(2); i > 0; --i) request.stop_token_ids.push_back(250 + below(100));
    if (below(2) == 0) request.min_tokens = below(static_cast<uint64_t>(request.max_new_tokens) + 1);
    for (int i = 20 * below(2); i > 0; --i) request.logit_bias[250 + below(100)] = static_cast<float>(below(9) - 4);
  }
  return requests;
}

void expect_same_as_alone(const EngineOptions& options) {
  const std::vector<Request> requests = random_requests(40, 5);
  Engine engine(test::kStoryteller, options);
  std::vector<Generation> alone;
  for (const Request& request : requests) alone.push_back(engine.generate({request}));

  ServiceResults results;
  AsyncEngine service(engine);
  const std::vector<RequestId> ids =
      submit_side_by_side(service, requests, results, [](size_t, RequestId, std::mt19937_64& random) {
        if (random() % 3 == 0) std::this_thread::sleep_for(milliseconds(random() % 30));
      });
  for (size_t r = 0; r < requests.size(); ++r) {
    const ServiceResults::Result result = results.wait(ids[r]);
    EXPECT_EQ(result.tokens, alone[r].tokens[0]) << "request " << r;
    EXPECT_EQ(result.end, alone[r].reasons[0] == batch::kStopToken ? RequestEnd::stop : RequestEnd::length);
    EXPECT_EQ(result.events_behind_end, 0);
  }
  const ServiceLoad load = settled(service);
  EXPECT_EQ(load.running, 0);
  EXPECT_EQ(load.pages_used, 0);
}

TEST(AsyncEngine, WritesWhatRequestsAloneDo) { expect_same_as_alone(usual_options()); }

// Kernels of 1, 3 and 8 tokens take turns while requests come and go.
TEST(AsyncEngine, WritesTheSameInSeveralKernels) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  EngineOptions options = usual_options();
  options.decoder.max_rows = 8;
  options.regimes = {1, 3};
  expect_same_as_alone(options);
}

TEST(AsyncEngine, HoldsMoreRequestsThanPages) {
  EngineOptions options = usual_options();
  options.decoder.max_pages = 3;  // one request at a time
  Engine engine(test::kStoryteller, options);
  const int64_t page = engine.decoder_options().page_size;
  ServiceResults results;
  AsyncEngine service(engine);
  std::vector<RequestId> ids;
  for (int i = 0; i < 12; ++i)
    ids.push_back(service.submit({.prompt = std::vector<int>(static_cast<size_t>(page), 300 + i),
                                  .max_new_tokens = 9,
                                  .ignore_stop_tokens = true},
                                 results.sink()));
  for (const RequestId id : ids) EXPECT_EQ(results.wait(id).tokens.size(), 9u);
  EXPECT_EQ(settled(service).pages_used, 0);
}

TEST(AsyncEngine, EndsOneRequestAndNoOther) {
  Engine engine(test::kStoryteller, usual_options());
  const Request request{.prompt = {300, 301, 302}, .max_new_tokens = 100, .ignore_stop_tokens = true};
  const std::vector<int> alone = engine.generate({request}).tokens[0];
  ServiceResults results;
  AsyncEngine service(engine);
  const RequestId first = service.submit(request, results.sink()), second = service.submit(request, results.sink()),
                  third = service.submit(request, results.sink()), fourth = service.submit(request, results.sink());
  results.wait(second, 5);
  service.abort(second);
  service.abort(second);
  service.abort(999);
  const ServiceResults::Result ended = results.wait(second);
  EXPECT_EQ(ended.end, RequestEnd::aborted);
  EXPECT_LT(ended.tokens.size(), 100u);
  EXPECT_TRUE(std::equal(ended.tokens.begin(), ended.tokens.end(), alone.begin()));
  for (const RequestId id : {first, third, fourth}) {
    EXPECT_EQ(results.wait(id).tokens, alone);
    EXPECT_EQ(results.wait(id).end, RequestEnd::length);
  }
  EXPECT_EQ(settled(service).pages_used, 0);
}

TEST(AsyncEngine, EndsARequestThatWaits) {
  Engine engine(test::kStoryteller, usual_options());
  ServiceResults results;
  AsyncEngine service(engine);
  const Request request{.prompt = {300}, .max_new_tokens = 100, .ignore_stop_tokens = true};
  std::vector<RequestId> ids;
  for (int64_t i = 0; i <= kPlaces; ++i) ids.push_back(service.submit(request, results.sink()));
  service.abort(ids.back());
  EXPECT_EQ(results.wait(ids.back()).end, RequestEnd::aborted);
  EXPECT_TRUE(results.wait(ids.back()).tokens.empty());
  EXPECT_EQ(results.wait(ids[0]).tokens.size(), 100u);
}

// A stop string is found by whoever reads the tokens, who ends the request and asks the next thing.
TEST(AsyncEngine, MayBeCalledBySinks) {
  Engine engine(test::kStoryteller, usual_options());
  ServiceResults results;
  AsyncEngine service(engine);
  std::atomic<RequestId> next{0};
  const RequestSink record = results.sink();
  const Request request{.prompt = {300}, .max_new_tokens = 50, .ignore_stop_tokens = true};
  int seen = 0;
  const RequestId id = service.submit(request, [&](RequestId self, const RequestEvent& event) {
    record(self, event);
    if (++seen != 4) return;
    service.abort(self);
    next = service.submit(request, record);
  });
  EXPECT_EQ(results.wait(id).end, RequestEnd::aborted);
  EXPECT_EQ(results.wait(next).tokens.size(), 50u);
}

TEST(AsyncEngine, WaitsWithoutRequestsAndGoesOn) {
  const test::EnvironmentVariable watchdog("MEGALITH_WATCHDOG_MS", "300");
  Engine engine(test::kStoryteller, usual_options());
  ServiceResults results;
  AsyncEngine service(engine);
  const Request request{.prompt = {300, 301}, .max_new_tokens = 5, .ignore_stop_tokens = true};
  std::vector<int> tokens;
  for (int i = 0; i < 3; ++i) {
    const ServiceResults::Result result = results.wait(service.submit(request, results.sink()));
    EXPECT_EQ(result.tokens.size(), 5u);
    if (i == 0) tokens = result.tokens;
    EXPECT_EQ(result.tokens, tokens);
    std::this_thread::sleep_for(milliseconds(800));  // longer than a kernel may take for nothing
  }
}

TEST(AsyncEngine, RefusesWhatCanNeverRun) {
  Engine engine(test::kStoryteller, usual_options());
  AsyncEngine service(engine);
  EXPECT_THROW(service.submit({.prompt = {}}, {}), UserError);
  EXPECT_THROW(service.submit({.prompt = std::vector<int>(128, 300)}, {}), UserError);
  EXPECT_THROW(service.submit({.prompt = {1 << 30}}, {}), UserError);
  EXPECT_EQ(service.load().waiting, 0);
}

TEST(AsyncEngine, TellsAllRequestsOfItsEnd) {
  Engine engine(test::kStoryteller, usual_options());
  ServiceResults results;
  std::vector<RequestId> ids;
  {
    AsyncEngine service(engine);
    for (int i = 0; i < 5; ++i)
      ids.push_back(
          service.submit({.prompt = {300}, .max_new_tokens = 100, .ignore_stop_tokens = true}, results.sink()));
    results.wait(ids[0], 1);
  }
  for (const RequestId id : ids) EXPECT_EQ(results.wait(id).end, RequestEnd::aborted);
  EXPECT_EQ(engine.generate({{.prompt = {300}, .max_new_tokens = 3, .ignore_stop_tokens = true}}).tokens[0].size(), 3u);
}

}  // namespace
}  // namespace megalith::engine
