// The most probable tokens in the place of each: those of the model's own logits, whatever was drawn, in any batch, with
// drafts, and from a service.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/model_logprobs.h"
#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"

namespace megalith::engine {
namespace {

constexpr const char* kTopModel = MEGALITH_SOURCE_DIR "/tests/golden/tiny/qwen3_tied";

EngineOptions top_options(int64_t draft_tokens = 0) {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_seq_len = 128;
  options.decoder.max_requests = 3;
  options.decoder.draft_tokens = draft_tokens;
  return options;
}

/// Three requests that want 5 top tokens, none and 20; the first two are drawn, with penalties, and the last is greedy.
std::vector<Request> three_requests() {
  Request drawn{.prompt = {5, 6, 7}, .max_new_tokens = 14, .ignore_stop_tokens = true};
  drawn.sampling = {.temperature = 1.5F, .presence_penalty = 2, .seed = 7};
  Request plain = drawn, greedy = drawn;
  plain.prompt = {9, 9, 9, 9, 9};
  greedy.prompt = {8, 9, 10, 8, 9};
  greedy.sampling = {};
  drawn.top_logprobs = 5, drawn.logprobs = true;
  greedy.top_logprobs = batch::kMaxTop;
  return {drawn, plain, greedy};
}

TEST(TopTokens, AreThoseOfTheModelsLogits) {
  Engine engine(kTopModel, top_options());
  Request request = three_requests()[0];
  const Generation all = engine.generate({request});
  ASSERT_EQ(all.top[0].size(), all.tokens[0].size());
  int not_first = 0;
  for (size_t i = 0; i < all.tokens[0].size(); ++i) {
    Request cut = request;
    cut.max_new_tokens = static_cast<int64_t>(i) + 1;
    engine.generate({cut});
    const ModelLogprobs model(engine);
    ASSERT_EQ(all.top[0][i].size(), 5u);
    for (size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(all.top[0][i][k].token, model.number(k)) << "token " << i << ", rank " << k;
      EXPECT_NEAR(all.top[0][i][k].logprob, model.of(model.number(k)), 1e-5) << "token " << i << ", rank " << k;
    }
    const auto own = std::ranges::find(all.top[0][i], all.tokens[0][i], &TopToken::token);
    if (own != all.top[0][i].end()) { EXPECT_EQ(own->logprob, all.logprobs[0][i]); }
    not_first += own != all.top[0][i].begin();
  }
  EXPECT_GT(not_first, 2) << "what is drawn is always the most probable";
}

// Beside others, in fewer steps, and when they come and go.
TEST(TopTokens, AreTheSameInABatchWithDraftsAndFromAService) {
  const std::vector<Request> requests = three_requests();
  Engine engine(kTopModel, top_options());
  std::vector<Generation> alone;
  for (const Request& request : requests) alone.push_back(engine.generate({request}));
  const auto expect_as_alone = [&](const Generation& together) {
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_EQ(together.tokens[r], alone[r].tokens[0]);
      ASSERT_EQ(together.top[r].size(), r == 1 ? 0 : together.tokens[r].size());
      for (size_t i = 0; i < together.top[r].size(); ++i) {
        EXPECT_EQ(together.top[r][i].size(), static_cast<size_t>(requests[r].top_logprobs));
        EXPECT_EQ(together.top[r][i], alone[r].top[0][i]);
      }
    }
  };
  expect_as_alone(engine.generate(requests));

  Engine with_drafts(kTopModel, top_options(4));
  const Generation drafted = with_drafts.generate(requests);
  EXPECT_GT(drafted.accepted, 0u);
  expect_as_alone(drafted);

  ServiceResults results;
  AsyncEngine service(with_drafts);
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(service.submit(request, results.sink()));
  for (size_t r = 0; r < requests.size(); ++r) {
    const ServiceResults::Result result = results.wait(ids[r]);
    EXPECT_EQ(result.tokens, alone[r].tokens[0]);
    for (size_t i = 0; i < result.top.size(); ++i)
      EXPECT_EQ(result.top[i], r == 1 ? std::vector<TopToken>() : alone[r].top[0][i]);
  }
}

TEST(TopTokens, AreRefusedWithWhatIsWanted) {
  Engine engine(kTopModel, top_options());
  for (const int wrong : {-1, batch::kMaxTop + 1}) {
    Request request = three_requests()[0];
    request.top_logprobs = wrong;
    try {
      engine.generate({request});
      ADD_FAILURE() << wrong;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("top_logprobs is {}, want 0 to 20", wrong)),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace megalith::engine
