// What the host writes for a kernel before a launch.
#include "megalith/engine/batch_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "megalith/engine/machine.h"
#include "megalith/kernels/advance_layout.h"
#include "megalith/model/config.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {
namespace {

using ::testing::ElementsAre;

TEST(BatchBlock, ARequestTakesThePagesOfItsLengthAtMost) {
  const DecoderOptions options{.max_requests = 2, .max_seq_len = 64, .page_size = 16};
  const std::vector<int> prompt(20);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 1}), 2);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 12}), 2);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 13}), 3);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 1000}), 4);
}

// The sum of both overflowed: a negative limit, no pages, and another request's cache overwritten.
TEST(BatchBlock, TheLargestNumberOfTokensIsAsManyAsThereIsRoomFor) {
  const DecoderOptions options{.max_requests = 2, .max_seq_len = 64, .page_size = 16};
  for (const int64_t most : {INT64_MAX, INT64_MAX - 10})
    EXPECT_EQ(pages_needed(options, {.prompt = std::vector<int>(20), .max_new_tokens = most}), 4);
}

// On a GPU `advance` asks for room for all records of an iteration at once: for more than there is it would wait for ever.
TEST(BatchBlock, TheMailboxHasRoomForWhatAnIterationPosts) {
  EXPECT_LE(advance::kMaxRequests * (2 + batch::kMaxTop) + int64_t{kCommandCapacity}, int64_t{kMailboxCapacity});
}

// A GPU is sent no table that nobody reads.
TEST(BatchBlock, TablesOfExtrasAreThereForThoseWhoHaveSome) {
  const auto extras = [](const Request& request) {
    std::vector<std::string> tables;
    for (const std::string& name : batch_block_changes({{}, request}))
      if (name == "own_stops" || name == "bias_tokens" || name == "biases") tables.push_back(name);
    return tables;
  };
  EXPECT_EQ(batch_block_changes({{}}).size(), batch_block_tensors().size() - 3);
  EXPECT_THAT(extras({.min_tokens = 3}), ElementsAre());
  EXPECT_THAT(extras({.stop_token_ids = {1}}), ElementsAre("own_stops"));
  EXPECT_THAT(extras({.logit_bias = {{1, 2.0F}}}), ElementsAre("bias_tokens", "biases"));
  EXPECT_THAT(extras({.allowed_token_ids = {1}}), ElementsAre("bias_tokens", "biases"));
  EXPECT_THAT(extras({.bad_words = {{1}}}), ElementsAre("bias_tokens", "biases"));
}

TEST(BatchBlock, WritesWhichTokensARequestMayHave) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/storyteller");
  const DecoderOptions options = DecoderOptions{.max_rows = 8, .max_requests = 2, .max_seq_len = 64}.resolved(config);
  const graph::Graph graph = build_decoder(config, options);
  MemoryMap memory;
  memory.bind_states(graph);
  const Request request{.prompt = {7},
                        .ignore_stop_tokens = true,
                        .stop_token_ids = {3, 4},
                        .min_tokens = 5,
                        .logit_bias = {{9, -1.5F}, {8, 2.0F}},
                        .allowed_token_ids = {9, 2, 9}};
  batch_block_fill(graph, options, {0}, {{.prompt = {7}, .logprobs = true}, request}, memory);
  const auto line_of = [&](const char* name, int64_t place, size_t width, size_t count) {
    const auto* const values = memory.get<int32_t>(name) + place * static_cast<int64_t>(width);
    return std::vector<int32_t>(values, values + count);
  };
  const auto settings = [&](int64_t place) { return line_of("sampling_i32", place, batch::kSamplingInts, 8); };
  EXPECT_THAT(settings(0), ElementsAre(0, 0, 0, batch::kLogprobs, 0, 0, 0, 0));
  EXPECT_THAT(settings(1), ElementsAre(0, 0, 0, batch::kEdits | batch::kOnly, 5, 2, 0, 0));
  EXPECT_THAT(line_of("requests", 0, batch::kRequestFields, 8)[batch::kFlags], 0);
  EXPECT_THAT(line_of("requests", 1, batch::kRequestFields, 8)[batch::kFlags], batch::kIgnoreStop | batch::kOwnStops);
  EXPECT_THAT(line_of("own_stops", 1, batch::kMaxOwnStops, 3), ElementsAre(3, 4, -1));
  EXPECT_THAT(line_of("bias_tokens", 1, batch::kMaxBiases, 2), ElementsAre(2, 9));
  const auto* const biases = memory.get<float>("biases") + batch::kMaxBiases;
  EXPECT_THAT(std::vector<float>(biases, biases + 2), ElementsAre(0, -1.5F));
}

// Of the first iteration there would be nothing but `advance`, and all weights read for it.
TEST(BatchBlock, RowsOfTheFirstIterationAreLaidOut) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/storyteller");
  const DecoderOptions options =
      DecoderOptions{.max_rows = 8, .max_requests = 3, .max_seq_len = 64, .max_pages = 12}.resolved(config);
  const graph::Graph graph = build_decoder(config, options);
  MemoryMap memory;
  memory.bind_states(graph);
  std::vector<int> a(5), b(7);
  std::iota(a.begin(), a.end(), 100);
  std::iota(b.begin(), b.end(), 200);
  batch_block_fill(graph, options, {}, {{.prompt = a}, {.prompt = b}}, memory);
  const auto of = [&](const char* name, size_t count) {
    const auto* const values = memory.get<int32_t>(name);
    return std::vector<int32_t>(values, values + count);
  };
  // A row each, then the first prompt what it wants.
  EXPECT_THAT(of("counts", 2), ElementsAre(8, 1));
  EXPECT_THAT(of("row_token", 8), ElementsAre(100, 101, 102, 103, 104, 200, 201, 202));
  EXPECT_THAT(of("row_request", 8), ElementsAre(0, 0, 0, 0, 0, 1, 1, 1));
  EXPECT_THAT(of("row_position", 8), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2));
  EXPECT_THAT(of("sample_row", 1), ElementsAre(4));
  EXPECT_THAT(of("sample_request", 1), ElementsAre(0));
  EXPECT_EQ(memory.get<int32_t>("requests")[batch::kRequestFields + batch::kDone], 3);
}

}  // namespace
}  // namespace megalith::engine
