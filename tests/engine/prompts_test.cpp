// A kernel of its own for prompts, and the one that makes tokens going on with what it leaves.
#include <gmock/gmock.h>

#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/regime_machine.h"
#include "megalith/engine/token_stream.h"
#include "megalith/optimize/schedule.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

EngineOptions options_of(std::optional<int64_t> prompt_rows) {
  EngineOptions options{.num_workers = 2, .prompt_rows = prompt_rows};
  options.decoder = {.max_rows = 4, .max_requests = 3, .max_seq_len = 128};
  return options;
}

Request prompt_of(int64_t length, int64_t seed = 1, int64_t new_tokens = 8) {
  Request request{.max_new_tokens = new_tokens, .ignore_stop_tokens = true};
  for (int64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int>((i * 37 + seed * 11) % 61));
  return request;
}

TEST(Prompts, OfAKernelOfTheirOwnMakeTheSameTokens) {
  Engine one(test::kTinyModel, options_of(0)), two(test::kTinyModel, options_of(16));
  EXPECT_EQ(one.prompt_rows(), 0);
  EXPECT_EQ(two.prompt_rows(), 16);
  EXPECT_EQ(two.prompt_passes(64), 4);
  EXPECT_EQ(one.prompt_passes(64), 16);
  EXPECT_EQ(two.prompt_passes(4), 1);
  // Whole passes, some rows left over, fewer than the other kernel takes, and none for the first one.
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{64}, {66}, {67, 1}, {17}, {5}, {3}, {40, 7, 90}, {1, 1, 100}, {30, 30, 30}}) {
    std::vector<Request> requests;
    for (size_t r = 0; r < lengths.size(); ++r)
      requests.push_back(prompt_of(lengths[r], static_cast<int64_t>(r), 4 + 5 * static_cast<int64_t>(r)));
    const Generation wanted = one.generate(requests), found = two.generate(requests);
    EXPECT_EQ(found.tokens, wanted.tokens) << lengths[0];
    EXPECT_EQ(found.reasons, wanted.reasons);
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_EQ(found.tokens[r].size(), static_cast<size_t>(requests[r].max_new_tokens));
      for (size_t i = 1; i < found.token_ms[r].size(); ++i) EXPECT_LE(found.token_ms[r][i - 1], found.token_ms[r][i]);
    }
  }
}

// Texts that end with their prompts leave the second kernel nothing to do.
TEST(Prompts, MayBeAll) {
  Engine one(test::kTinyModel, options_of(0)), two(test::kTinyModel, options_of(16));
  const std::vector<Request> requests = {prompt_of(90, 1, 1), prompt_of(20, 2, 1)};
  for (int again = 0; again < 3; ++again) {
    const Generation found = two.generate(requests);
    EXPECT_EQ(found.tokens, one.generate(requests).tokens);
    EXPECT_FALSE(found.cancelled);
    for (const std::vector<int>& tokens : found.tokens) EXPECT_EQ(tokens.size(), 1u);
  }
}

TEST(Prompts, CanBeCancelledInEitherKernel) {
  Engine engine(test::kTinyModel, options_of(16));
  const Request request = prompt_of(60, 1, 60);
  const Generation wanted = engine.generate({request});
  ASSERT_EQ(wanted.tokens[0].size(), 60u);
  for (const size_t after : {0, 1, 2, 30}) {
    TokenStream stream(engine, {request});
    stream.start();
    for (size_t i = 0; i < after; ++i) ASSERT_TRUE(stream.next());
    engine.cancel();
    while (stream.next()) continue;
    const Generation cut = stream.finish();
    EXPECT_TRUE(cut.cancelled || cut.tokens[0].size() == 60);
    ASSERT_LE(cut.tokens[0].size(), 60u);
    EXPECT_TRUE(std::equal(cut.tokens[0].begin(), cut.tokens[0].end(), wanted.tokens[0].begin()));
    stream.end();
    EXPECT_EQ(engine.generate({request}).tokens, wanted.tokens) << "the next run begins anew";
  }
  for (const size_t after : {0, 1, 2}) {  // left in the middle
    TokenStream stream(engine, {request});
    stream.start();
    for (size_t i = 0; i < after; ++i) ASSERT_TRUE(stream.next());
  }
  EXPECT_EQ(engine.generate({request}).tokens, wanted.tokens);
}

TEST(Prompts, HaveOneKernelWhileTasksAreRecorded) {
  Engine engine(test::kTinyModel, options_of(16));
  engine.profile(64);
  EXPECT_EQ(engine.prompt_passes(64), 16);
  engine.generate({prompt_of(64)});
  EXPECT_GT(engine.profile_take().workers.size(), 0u);
  engine.profile(0);
  EXPECT_EQ(engine.prompt_passes(64), 4);
}

TEST(Prompts, WantMoreRowsThanTokens) {
  EXPECT_THAT([] { Engine(test::kTinyModel, options_of(4)); },
              ThrowsMessage<UserError>(HasSubstr("--prompt-rows is 4, want more than the 4 tokens")));
  EXPECT_EQ(Engine(test::kTinyModel, options_of(std::nullopt)).prompt_rows(), 0) << "-b says how many";
}

// The two kernels' graphs must have the same states, and they must lie alike.
TEST(Prompts, ShareNothingThatLiesOtherwise) {
  const ModelConfig config = config_read(test::kTinyModel);
  const auto graph_of = [&](DecoderOptions options) {
    options.max_seq_len = 128;
    return build_decoder(config, options);
  };
  const auto reason = [&](const graph::Graph& decode, const graph::Graph& prompts) {
    return why_not_shared(decode, optimize::make_schedule(decode, "cpu"), prompts,
                          optimize::make_schedule(prompts, "cpu"));
  };
  const graph::Graph few = graph_of({.max_rows = 4}), many = graph_of({.max_rows = 64});
  EXPECT_EQ(reason(few, many), "");
  EXPECT_THAT(reason(many, few), HasSubstr("\"row_token\" is of another shape or dtype"));
  EXPECT_THAT(reason(few, graph_of({.max_rows = 64, .kv_dtype = DType::f16})), HasSubstr("cache\" is of another"));
  EXPECT_THAT(reason(few, graph_of({.max_rows = 64, .page_size = 32})), HasSubstr("is of another shape"));
  graph::Graph more = graph_of({.max_rows = 4});
  more.state("more", DType::i32, {1});
  EXPECT_EQ(reason(more, many), "only one of them has \"more\"");
  graph::Graph most = graph_of({.max_rows = 64});
  most.state("more", DType::i32, {1});
  EXPECT_EQ(reason(few, most), "only one of them has \"more\"");
  graph::Schedule other = optimize::make_schedule(many, "cpu");
  other.layouts[static_cast<size_t>(many.find("layer.0.k_cache"))] = graph::Layout::head_pairs;
  EXPECT_EQ(why_not_shared(few, optimize::make_schedule(few, "cpu"), many, other),
            "\"layer.0.k_cache\" lies in head-pairs for one and in rows for the other");
}

}  // namespace
}  // namespace megalith::engine
