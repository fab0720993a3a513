// Requests that begin behind tokens which nobody worked through: how a benchmark reaches a depth for nothing.
#include <gmock/gmock.h>

#include "megalith/base/error.h"
#include "megalith/engine/engine.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kTiny = MEGALITH_SOURCE_DIR "/tests/golden/tiny/qwen3_tied";

EngineOptions tiny(bool dummy) {
  EngineOptions options{.num_workers = 2, .dummy_weights = dummy};
  options.decoder.max_seq_len = 128;
  return options;
}

Request request_at(int64_t length, int64_t cached) {
  Request request{.max_new_tokens = 8, .ignore_stop_tokens = true, .cached_tokens = cached};
  for (int64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int>(i * 37 % 61));
  return request;
}

TEST(CachedTokens, GoOnFromWhatTheCacheHolds) {
  Engine engine(kTiny, tiny(true));
  engine.generate({request_at(90, 89)});  // makes up a past
  const Generation made_up = engine.generate({request_at(90, 89)});
  const Generation worked = engine.generate({request_at(90, 0)});  // the same text, all of it: now the cache is true
  const Generation cached = engine.generate({request_at(90, 89)});
  EXPECT_EQ(cached.tokens, worked.tokens);
  EXPECT_NE(made_up.tokens, worked.tokens) << "the past makes no difference, so this test shows nothing";
  ASSERT_EQ(cached.token_ms[0].size(), 8u);
  for (size_t i = 1; i < 8; ++i) EXPECT_LE(cached.token_ms[0][i - 1], cached.token_ms[0][i]);
  EXPECT_EQ(cached.token_ms[0].front(), cached.first_token_ms);
  EXPECT_EQ(cached.token_ms[0].back(), cached.last_token_ms);
}

TEST(CachedTokens, AreForDummyWeightsOnly) {
  Engine engine(kTiny, tiny(false));
  EXPECT_THAT([&] { engine.generate({request_at(10, 4)}); },
              ThrowsMessage<UserError>(HasSubstr("only for dummy weights (--load-format dummy)")));
}

TEST(CachedTokens, LeaveOneToWorkOn) {
  Engine engine(kTiny, tiny(true));
  EXPECT_THAT([&] { engine.generate({request_at(10, 10)}); }, ThrowsMessage<UserError>(HasSubstr("want 0 to 9")));
  EXPECT_THAT([&] { engine.generate({request_at(10, -1)}); }, ThrowsMessage<UserError>(HasSubstr("want 0 to 9")));
}

TEST(Sizes, AreThoseOfTheModel) {
  const Engine engine(kTiny, tiny(false));
  EXPECT_GT(engine.kv_bytes(), 0);
  EXPECT_LT(engine.head_bytes(), engine.weight_bytes_per_token());
  EXPECT_EQ(engine.weight_bytes(), engine.weight_bytes_per_token());  // the embedding is the output projection
  EXPECT_GT(engine.weight_bytes(), engine.num_parameters());
  const Engine untied(MEGALITH_SOURCE_DIR "/tests/golden/tiny/llama_untied", tiny(false));
  EXPECT_EQ(untied.weight_bytes() - untied.head_bytes(), untied.weight_bytes_per_token());  // both are [V, H]
}

}  // namespace
}  // namespace megalith::engine
