// Log-probabilities of the tokens that a model makes, against its logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megalith/engine/engine.h"

namespace megalith::engine {
namespace {

TEST(Logprobs, AreThoseOfTheLogits) {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_seq_len = 128;
  options.decoder.max_requests = 3;  // as in chosen_tokens_test.cpp: one kernel for both
  Engine engine(MEGALITH_SOURCE_DIR "/tests/golden/tiny/qwen3_tied", options);
  const int64_t vocab = engine.config().vocab_size;
  // Sampled and with penalties, neither of which counts; the second request does not ask.
  for (int64_t tokens = 1; tokens < 6; ++tokens) {
    Request request{.prompt = {5, 6, 7}, .max_new_tokens = tokens, .ignore_stop_tokens = true, .logprobs = true};
    request.sampling = {.temperature = 1.5f, .repetition_penalty = 1.3f, .seed = 9};
    Request silent = request;
    silent.logprobs = false;
    std::vector<float> told;
    const Generation generation = engine.generate({request, silent}, [&](const TokenEvent& event) {
      if (event.request == 0 && !event.finished) told.push_back(event.logprob);
    });
    ASSERT_EQ(generation.logprobs[0].size(), static_cast<size_t>(tokens));
    EXPECT_EQ(generation.logprobs[0], told);
    EXPECT_TRUE(generation.logprobs[1].empty());
    EXPECT_EQ(generation.tokens[0], generation.tokens[1]);
    double total = 0;
    for (int64_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(engine.logits()[v]));
    const double wanted = engine.logits()[generation.tokens[0].back()] - std::log(total);
    EXPECT_LT(wanted, 0);
    EXPECT_NEAR(generation.logprobs[0].back(), wanted, 1e-5 * std::max(1.0, -wanted)) << tokens;
  }
}

}  // namespace
}  // namespace megalith::engine
