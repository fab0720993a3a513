// Several kernels of one model on a GPU: which of them can share their states, as far as that needs no GPU, and the
// bundled model at a load that falls through all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "base/temporary_folder.h"
#include "cuda/skip.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/regime_machine.h"
#include "megalith/engine/regimes.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/schedule.h"
#include "support/default_regimes.h"
#include "support/streamed.h"

namespace megalith {
namespace {

using ::testing::ElementsAre;

ModelConfig one_layer(const std::string& model) {
  ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/" + model);
  config.num_layers = 1;
  return config;
}

std::string why_not_shared(const ModelConfig& config, const DecoderOptions& smaller, const DecoderOptions& larger) {
  const graph::Graph a = build_decoder(config, smaller), b = build_decoder(config, larger);
  EXPECT_TRUE(testing::streams_all_products(a) && testing::streams_all_products(b));
  return engine::why_not_shared(a, optimize::make_schedule(a, smaller.target), b,
                                optimize::make_schedule(b, larger.target));
}

// The default ones, for so many requests: how many tokens each has at a time, "in rows" behind that if caches lie so.
std::string shared_regimes(const std::string& model, const std::string& target, int64_t requests) {
  const ModelConfig config = one_layer(model);
  DecoderOptions options{.max_requests = requests, .max_seq_len = 512, .target = target};
  const std::vector<int64_t> rows = testing::default_regimes(config, options);
  for (size_t i = 1; i < rows.size(); ++i) {
    DecoderOptions smaller = options, larger = options;
    smaller.max_rows = rows[i - 1], larger.max_rows = rows[i];
    EXPECT_EQ(why_not_shared(config, smaller, larger), "")
        << model << " for " << target << ", " << rows[i - 1] << " and " << rows[i] << " rows";
  }
  return fmt::format("{}{}", fmt::join(rows, " "), options.caches_in_rows ? " in rows" : "");
}

TEST(CudaRegimes, ShareTheirStates) {
  for (const int64_t requests : {1, 8, 9, 16, 64, 65, 128}) shared_regimes("Qwen3-8B", "cuda:sm_90a", requests);
  for (const char* target : {"cuda:sm_90a", "cuda:sm_100a"})
    for (const char* model : {"Llama-3.2-1B", "Qwen2.5-7B", "Qwen3-0.6B"})
      EXPECT_EQ(shared_regimes(model, target, 8), "1 2 8 256 512 1024 2048") << model << " for " << target;
  // Alone a kernel lays its caches out as it likes, which is the same way.
  DecoderOptions eight{.max_rows = 8, .max_requests = 64, .max_seq_len = 512, .target = "cuda:sm_90a"}, many = eight;
  many.max_rows = 64;
  EXPECT_EQ(why_not_shared(one_layer("Qwen3-8B"), eight, many), "");
}

// An A100 has no room for attention of more than 128 tokens with heads of 128 values, and those with less shared memory have none for
// more than 8.
TEST(CudaRegimes, ShareThemOnGpusWithLessSharedMemory) {
  for (const char* model : {"Qwen2.5-7B", "Qwen3-0.6B", "Qwen3-8B"}) {
    EXPECT_EQ(shared_regimes(model, "cuda:sm_80", 1), "1 4 128") << model;
    EXPECT_EQ(shared_regimes(model, "cuda:sm_80", 64), "1 2 8 64 128") << model;
    for (const char* target : {"cuda:sm_86", "cuda:sm_89", "cuda:sm_120a"}) {
      EXPECT_EQ(shared_regimes(model, target, 1), "1 4 256 512 in rows") << model << " for " << target;
      EXPECT_EQ(shared_regimes(model, target, 64), "1 2 8 64 256 512 in rows") << model << " for " << target;
    }
  }
  EXPECT_EQ(shared_regimes("Llama-3.2-1B", "cuda:sm_80", 1), "1 4 256 512");
  EXPECT_EQ(shared_regimes("Qwen3-8B", "cuda:sm_80", 128), "1 2 8 64 128");
  EXPECT_EQ(shared_regimes("Qwen3-8B", "cuda:sm_80", 256), "1 2 8 64 256 512 in rows");
  EXPECT_EQ(shared_regimes("Llama-3.2-1B", "cuda:sm_86", 1), "1 4 256 512 in rows");
}

TEST(CudaRegimes, BeginWithAKernelThatIsCompiledQuicklyAndWritesTheSame) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const std::string folder = MEGALITH_SOURCE_DIR "/models/storyteller";
  const test::EnvironmentVariable optimize("MEGALITH_OPTIMIZE", "full");
  for (const size_t num : {1, 8, 64, 128}) {
    std::vector<engine::Request> requests;
    for (size_t r = 0; r < num; ++r) {
      engine::Request request{.max_new_tokens = 100, .ignore_stop_tokens = true};
      for (size_t i = 0; i < 1 + r * 7 % 50; ++i) request.prompt.push_back(static_cast<int>((i * 37 + r * 11) % 509));
      if (r % 2 == 1) request.sampling = {.temperature = 1, .top_p = 0.9f, .top_k = 50, .seed = r};
      requests.push_back(request);
    }
    engine::EngineOptions options{
        .decoder = {.max_rows = static_cast<int64_t>(num), .max_requests = static_cast<int64_t>(num)},
        .target = "cuda"};
    options.decoder.shares_caches = true;  // else a sequence's sums would not depend on how many there are
    const std::vector<std::vector<int>> wanted = engine::Engine(folder, options).generate(requests).tokens;
    const test::TemporaryFolder empty;
    const test::EnvironmentVariable cache("MEGALITH_CACHE_DIR", empty.path);
    options.prompt_rows = 256;
    options.starts_early = true;
    engine::Engine engine(folder, options);
    ASSERT_TRUE(engine.kernel().is_quick);
    EXPECT_EQ(engine.generate(requests).tokens, wanted) << num << " at a time";
  }
}

// Sums have another order in each, so a sequence may part from what one kernel writes where two tokens are as likely as
// rounding to bf16 can tell.
TEST(CudaRegimes, WriteWhatTheModelWritesWhileTheLoadFalls) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const std::string folder = MEGALITH_SOURCE_DIR "/models/storyteller";
  constexpr double kRounding = 5e-2;  // of a logit (run_test.cpp)
  constexpr size_t kRequests = 96;
  engine::Engine exact(folder, {.decoder = {.max_rows = stream::kMaxWideRows + 16}, .target = "cuda"});
  engine::Engine engine(folder, {.decoder = {.max_requests = kRequests}, .target = "cuda"});
  ASSERT_THAT(engine.regimes(), ElementsAre(1, 2, 8, 64, 96, 256, 512, 1024, 2048));
  std::vector<engine::Request> requests;
  for (size_t r = 0; r < kRequests; ++r) {
    engine::Request request{.max_new_tokens = r < 1    ? 80
                                              : r < 2  ? 70
                                              : r < 4  ? 60
                                              : r < 40 ? 30
                                                       : 10,
                            .ignore_stop_tokens = true};
    for (size_t i = 0; i < 1 + r * 7 % 50; ++i) request.prompt.push_back(static_cast<int>((i * 37 + r * 11) % 509));
    requests.push_back(request);
  }
  const engine::Generation found = engine.generate(requests);
  EXPECT_THAT(found.regimes, ElementsAre(2048, 512, 96, 64, 8, 2, 1));
  EXPECT_EQ(engine.generate(requests).tokens, found.tokens) << "every time";
  size_t num_equal = 0, num_tokens = 0;
  for (size_t r = 0; r < kRequests; ++r) {
    const std::vector<int> wanted = exact.generate({requests[r]}).tokens[0];
    ASSERT_EQ(found.tokens[r].size(), wanted.size());
    const auto [differs, there] = std::ranges::mismatch(found.tokens[r], wanted);
    num_equal += static_cast<size_t>(there - wanted.begin());
    num_tokens += wanted.size();
    if (there == wanted.end()) continue;
    engine::Request so_far{.prompt = requests[r].prompt, .max_new_tokens = 1, .ignore_stop_tokens = true};
    so_far.prompt.insert(so_far.prompt.end(), wanted.begin(), there);
    exact.generate({so_far});
    EXPECT_LT(exact.logits()[*there] - exact.logits()[*differs], 2 * kRounding)
        << "sequence " << r << ", token " << there - wanted.begin();
  }
  EXPECT_GT(num_equal, num_tokens / 2);

  // Cancelled in each of them, and whole again.
  for (const size_t after : {0, 1, 500, 1500, 1900}) {
    size_t made = 0;
    const engine::Generation cut = engine.generate(requests, [&](const engine::TokenEvent& event) {
      made += !event.finished;
      if (made >= after) engine.cancel();
    });
    for (size_t r = 0; r < kRequests; ++r)
      EXPECT_TRUE(std::equal(cut.tokens[r].begin(), cut.tokens[r].end(), found.tokens[r].begin())) << after;
  }
  EXPECT_EQ(engine.generate(requests).tokens, found.tokens);
}

}  // namespace
}  // namespace megalith
