// What does not fit into memory is refused before anything is compiled, read or allocated, whatever the numbers are.
#include <gmock/gmock.h>

#include <chrono>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/memory_report.h"

namespace megalith::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const std::string kShape = MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B";

void load(const DecoderOptions& decoder) {
  Engine engine(kShape, {.decoder = decoder, .num_workers = 2, .dummy_weights = true});
}

TEST(MemoryNeedsOfAHost, AreSaidWithWhatWouldFit) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT([] { load({.max_requests = 1024, .max_seq_len = 40960}); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("[memory] the model does not fit into memory: it needs "),
                                               HasSubstr("for 1024 x 40960 positions"), HasSubstr(" are available; "),
                                               HasSubstr("--max-batch "), HasSubstr(" would fit"))));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "nothing was compiled";
}

TEST(MemoryNeedsOfAHost, CountWhatIsHeld) {
  const ModelConfig config = config_read(kShape);
  const DecoderOptions options = DecoderOptions{.max_seq_len = 1024, .kv_dtype = DType::f32}.resolved(config);
  const graph::Graph graph = build_decoder(config, options);
  const MemoryNeeds made_up = host_memory_needs(graph, options, true), read = host_memory_needs(graph, options, false);
  EXPECT_EQ(made_up.kv_cache, int64_t{28} * 2 * 1024 * 8 * 128 * 4);
  EXPECT_NEAR(static_cast<double>(made_up.weights), 0.6e9 * 2, 0.1e9);
  EXPECT_LE(read.weights, made_up.weights) << "what is not packed stays in its file";
  EXPECT_GT(read.weights, 0);
  EXPECT_GE(made_up.other, int64_t{2} * 1024 * 64 * 4) << "the rope tables";
  EXPECT_EQ(memory_report(made_up, made_up.total()), "");
  EXPECT_THAT(memory_report(made_up, made_up.total() - 1), AllOf(HasSubstr("into memory"), Not(HasSubstr("driver"))));
}

// Products of these are beyond 64 bits.
TEST(MemoryNeedsOfAHost, DoNotOverflow) {
  MemoryNeeds needs{.weights = INT64_MAX / 2, .kv_cache = INT64_MAX / 2, .other = INT64_MAX / 2, .on_gpu = false};
  EXPECT_EQ(needs.total(), INT64_MAX);
  EXPECT_NE(memory_report(needs, int64_t{1} << 40), "");
}

TEST(MemoryNeedsOfAHost, TokensOfTheCacheAreCounted) {
  const ModelConfig config = config_read(kShape);
  ModelConfig far = config;
  far.max_position_embeddings = 1 << 26;
  auto error = [](const ModelConfig& model, const DecoderOptions& options) {
    return test::message_of<UserError>([&] { options.resolved(model); });
  };
  for (const DecoderOptions& options : {DecoderOptions{.max_requests = 1024, .max_seq_len = 1 << 26},
                                        DecoderOptions{.max_requests = 1024, .max_seq_len = 1 << 26, .page_size = 1},
                                        DecoderOptions{.max_requests = 33, .max_seq_len = 1 << 26, .page_size = 65536}})
    EXPECT_THAT(error(far, options), AllOf(HasSubstr("counted in 32 bits"), HasSubstr("--num-pages up to")));
  EXPECT_EQ((DecoderOptions{.max_requests = 1024, .max_seq_len = 1 << 26, .max_pages = 1000}.resolved(far).num_pages()),
            1000);
  for (const int64_t length : {INT64_MIN, int64_t{-1}, int64_t{1}, int64_t{40961}, int64_t{1} << 40, INT64_MAX})
    EXPECT_THAT(error(config, {.max_seq_len = length}),
                HasSubstr("want 2 to 40960 (max_position_embeddings of the model)"));
  for (const int64_t pages : {INT64_MIN, int64_t{-1}, INT64_MAX})
    EXPECT_THAT(error(config, {.max_pages = pages}), HasSubstr("--num-pages is"));
}

}  // namespace
}  // namespace megalith::engine
