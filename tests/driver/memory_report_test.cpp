#include "megalith/engine/memory_report.h"
#include "megalith/base/ceil_div.h"

#include "cuda/skip.h"
#include "driver/fake_driver.h"
#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/graph/lower.h"
#include "megalith/model/decoder.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/streams.h"
#include "megalith/task/partition.h"
#include "megalith/task/streams.h"

namespace megalith::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30, kDriver = kGiB / 4;

// 16 GiB of weights, and 1 MiB of cache for each of 8 x 4096 positions: 32 GiB.
const MemoryNeeds kNeeds{.weights = 16 * kGiB,
                         .kv_cache = 32 * kGiB,
                         .activations = kGiB,
                         .other = kGiB,
                         .options = {.max_requests = 8, .max_seq_len = 4096}};

TEST(MemoryReport, NothingToSayWhereItFits) {
  EXPECT_EQ(memory_report(kNeeds, 50 * kGiB + kDriver), "");
  EXPECT_NE(memory_report(kNeeds, 50 * kGiB + kDriver - 1), "");
}

TEST(MemoryReport, SaysWhatIsNeededAndWhatWouldFit) {
  EXPECT_EQ(memory_report(kNeeds, 40 * kGiB + kDriver),
            "the model does not fit on the GPU: it needs 50 GiB (weights 16 GiB, KV cache 32 GiB for 8 x 4096 "
            "positions, activations 1 GiB, other 1 GiB) and 256 MiB for the driver, but 40.2 GiB are free; "
            "--max-seq-len 2816 or --max-batch 5 would fit");
}

TEST(MemoryReport, AModelThatIsTooLargeGetsNoAdviceThatDoesNotHelp) {
  EXPECT_THAT(memory_report(kNeeds, 10 * kGiB),
              AllOf(HasSubstr("the weights alone are too large"), Not(HasSubstr("would fit"))));
  EXPECT_THAT(memory_report(kNeeds, 18 * kGiB),
              AllOf(HasSubstr("no shorter context fits either"), Not(HasSubstr("would fit"))));
  EXPECT_THAT(memory_report(kNeeds, 0), HasSubstr("but 0 B are free"));
}

TEST(MemoryReport, OneTextHasNoSmallerBatch) {
  MemoryNeeds needs = kNeeds;
  needs.options.max_requests = 1, needs.kv_cache /= 8;
  EXPECT_THAT(memory_report(needs, 20 * kGiB), AllOf(HasSubstr("--max-seq-len"), Not(HasSubstr("--max-batch"))));
}

// All tasks on one worker: where they run changes nothing here.
MemoryNeeds needs_of(const ModelConfig& config, const DecoderOptions& options) {
  const graph::Graph graph = build_decoder(config, options);
  task::Partitioned partitioned =
      task::partition(graph, optimize::lower(graph, "cuda"), 16, machine::worker_rates("cuda"));
  task::TaskGraph tasks{.tasks = std::move(partitioned.tasks), .buffers = std::move(partitioned.buffers)};
  tasks.arena_bytes = 12345;
  tasks.workers.resize(1);
  for (size_t t = 0; t < tasks.tasks.size(); ++t) tasks.workers[0].push_back(static_cast<int>(t));
  task::add_streams(tasks, graph, optimize::make_schedule(graph, "cuda"), machine::gpu_of_target("cuda").shared_bytes);
  return memory_needs(graph, options, tasks, 0);
}

// The number behind the name of an option in the advice, or 0.
int64_t advised(const std::string& report, const std::string& option) {
  const size_t at = report.find(option + " ", std::min(report.find(';'), report.size()));
  return at == std::string::npos ? 0 : std::stoll(report.substr(at + option.size() + 1));
}

// What is advised fits, and one more does not: asked of the graph that such options make. Chunks of attention (256
// positions) and pages (48) round up each, so between lengths that fit there are jumps.
TEST(MemoryReport, TheAdviceIsTrueAndTheBest) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B");
  const auto needs_with = [&](int64_t requests, int64_t seq_len, int64_t pages) {
    const DecoderOptions options{
        .max_requests = requests, .max_seq_len = seq_len, .page_size = 48, .max_pages = pages, .kv_dtype = DType::bf16};
    return needs_of(config, options.resolved(config));
  };
  const auto fits = [&](int64_t requests, int64_t seq_len, int64_t pages, int64_t free) {
    return memory_report(needs_with(requests, seq_len, pages), free).empty();
  };
  const MemoryNeeds needs = needs_with(3, 1500, 0), given = needs_with(3, 1500, 90);
  for (const double share : {0.36, 0.6, 0.99}) {
    const int64_t free =
        kDriver + needs.total() - needs.kv_cache + static_cast<int64_t>(share * static_cast<double>(needs.kv_cache));
    const std::string report = memory_report(needs, free);
    const int64_t seq_len = advised(report, "--max-seq-len"), batch = advised(report, "--max-batch");
    ASSERT_TRUE(seq_len > 0 && batch > 0) << report;
    EXPECT_TRUE(fits(3, seq_len, 0, free)) << report;
    EXPECT_FALSE(fits(3, seq_len + 1, 0, free)) << report;
    EXPECT_TRUE(fits(batch, 1500, 0, free)) << report;
    EXPECT_FALSE(fits(batch + 1, 1500, 0, free)) << report;
  }
  // Whoever fixed the number of pages gets that advised: no other option makes the cache smaller.
  const int64_t free = kDriver + given.total() - given.kv_cache / 2;
  const std::string report = memory_report(given, free);
  EXPECT_THAT(report, AllOf(HasSubstr("for 90 pages of 48 positions"), Not(HasSubstr("--max"))));
  const int64_t pages = advised(report, "--num-pages");
  EXPECT_TRUE(fits(3, 1500, pages, free)) << report;
  EXPECT_FALSE(fits(3, 1500, pages + 1, free)) << report;
}

TEST(MemoryReport, ADecodersNeedsAreThoseOfItsGraph) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B");
  DecoderOptions options{.max_requests = 3, .max_seq_len = 1000, .kv_dtype = DType::bf16};
  options = options.resolved(config);
  const MemoryNeeds needs = needs_of(config, options);
  EXPECT_EQ(needs.kv_cache, 2 * 2 * config.num_layers * config.num_kv_heads * config.head_dim * options.num_pages() *
                                options.page_size);
  // The largest logit of each chunk of 1024, and where it is, travel in words: three texts, eight bytes each.
  EXPECT_EQ(needs.activations, 12345 + 2 * 3 * 8 * ceil_div(config.vocab_size, int64_t{1024}));
  EXPECT_GT(needs.weights, int64_t{1'190'000'000});  // 596 million parameters in bf16
  EXPECT_LT(needs.weights, int64_t{1'200'000'000});
}

// The embedding is looked up in place and multiplied from the stream; all other matrices are in the streams only.
TEST(MemoryReport, StreamedWeightsAreCountedWhereTheyLie) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B");
  const MemoryNeeds needs = needs_of(config, {.max_requests = 3, .max_seq_len = 1000, .target = "cuda"});
  const int64_t embedding = config.vocab_size * config.hidden_size * 2, qkv = int64_t{4096} * 1024 * 2;
  EXPECT_GT(needs.weights, embedding + 1'190'000'000);
  EXPECT_LT(needs.weights, embedding + 1'200'000'000);
  EXPECT_GT(needs.activations, 12345) << "the exchange";
  EXPECT_GT(needs.other, qkv) << "room to pack the largest matrix that does not stay";
  EXPECT_LT(needs.other, qkv + (int64_t{64} << 20)) << "the embedding is packed from where it stays";
}

// From the engine down to the driver: the model is refused before a byte of it is copied.
class EngineMemoryTest : public test::FakeDriverTest {};

TEST_F(EngineMemoryTest, AModelThatDoesNotFitIsRefusedAtOnce) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  fake.total_bytes = int64_t{100} << 20;
  EngineOptions options = test::few_kernels();
  options.regimes.emplace();  // of those that were asked for the message says more
  const std::string message =
      test::message_of<UserError>([&] { Engine(MEGALITH_SOURCE_DIR "/models/storyteller", options); });
  EXPECT_THAT(message, HasSubstr("[cuda] the model does not fit on the GPU"));
  EXPECT_EQ(fake.calls["cuMemcpyHtoD_v2"], 0);
  EXPECT_EQ(fake.calls["cuMemAlloc_v2"], 0);
}

// Of a second kernel only what is to be done with each matrix comes to the card.
TEST_F(EngineMemoryTest, EachWeightCrossesTheLinkOnce) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  const std::string folder = MEGALITH_SOURCE_DIR "/models/storyteller";
  EngineOptions options = test::few_kernels();
  const auto num_copies = [&] {
    fake.calls.clear();
    const Engine engine(folder, options);
    return fake.calls["cuMemcpyHtoDAsync_v2"];
  };
  const int of_two = num_copies();
  options.regimes.emplace();
  const int of_one = num_copies();
  const Engine engine(folder, options);
  const size_t num_matrices = runtime::plan_streams(engine.kernel().tasks).records.size();
  EXPECT_GT(num_matrices, 0u);
  EXPECT_EQ(of_two - of_one, static_cast<int>(num_matrices));
}

}  // namespace
}  // namespace megalith::engine
