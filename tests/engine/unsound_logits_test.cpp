// Logits that are no numbers are told of the texts that they made, and of no others: a text that ended early, too, whose
// rows others have taken over since.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/temporary_folder.h"
#include "engine/service_results.h"
#include "megalith/engine/async_engine.h"
#include "megalith/engine/engine.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kPoison = 77;  // its embedding is NaN

// Without tied embeddings, so that the head is sound.
class UnsoundLogits : public ::testing::Test {
 protected:
  UnsoundLogits() {
    const std::string whole = MEGALITH_SOURCE_DIR "/tests/golden/tiny/llama_untied";
    std::filesystem::copy(whole, model_);
    const Weights weights = Weights::open(whole);
    std::vector<WeightTensor> tensors;
    for (const std::string& name : weights.names()) tensors.push_back(weights.get(name));
    const auto table = std::ranges::find(tensors, "model.embed_tokens.weight", &WeightTensor::name);
    std::vector<std::byte> bytes(table->bytes.begin(), table->bytes.end());
    const auto row = static_cast<ptrdiff_t>(bytes.size()) / table->shape[0];
    std::fill_n(bytes.begin() + kPoison * row, row, std::byte{0xff});
    table->bytes = bytes;
    safetensors_write(model_ + "/model.safetensors", tensors);
    EngineOptions options{.num_workers = 2};
    options.decoder.max_seq_len = 64;
    options.decoder.max_requests = 3;
    engine_ = std::make_unique<Engine>(model_, options);
  }
  static Request request(int token, int64_t count) {
    return {.prompt = {5, token}, .max_new_tokens = count, .ignore_stop_tokens = true};
  }
  std::string trouble(const std::vector<Request>& requests) {
    return engine_->logits_trouble(engine_->generate(requests));
  }

  const test::TemporaryFolder folder_;
  const std::string model_ = folder_ / "llama_untied";
  std::unique_ptr<Engine> engine_;
};

constexpr const char* kMeans = " are NaN or infinite, so that what is made of them means nothing";

TEST_F(UnsoundLogits, OfATextThatEndedEarly) {
  EXPECT_THAT(trouble({request(6, 8), request(kPoison, 1), request(7, 8)}),
              HasSubstr(std::string("the model's logits of sequence 2 from token 1 on") + kMeans));
}

TEST_F(UnsoundLogits, OfTheOneThatIsLeft) {
  EXPECT_THAT(trouble({request(6, 1), request(7, 2), request(kPoison, 8)}),
              HasSubstr(std::string("the model's logits of sequence 3 from token 1 on") + kMeans));
}

TEST_F(UnsoundLogits, OfSeveral) {
  EXPECT_THAT(trouble({request(kPoison, 1), request(7, 2), request(kPoison, 3)}),
              HasSubstr(std::string("of sequence 1 from token 1 on, of sequence 3 from token 1 on") + kMeans));
}

TEST_F(UnsoundLogits, WithLogProbabilitiesAsWell) {
  Request asks = request(kPoison, 1);
  asks.logprobs = true;
  EXPECT_THAT(trouble({asks, request(7, 4)}), HasSubstr("of sequence 1 from token 1 on"));
}

TEST_F(UnsoundLogits, OfAnEarlierBatchAreForgotten) {
  EXPECT_NE(trouble({request(kPoison, 1), request(kPoison, 1), request(kPoison, 1)}), "");
  EXPECT_EQ(trouble({request(6, 8), request(7, 1)}), "");
}

// Nobody takes its pages for his first tokens, and others go on.
TEST_F(UnsoundLogits, OfARequestAreItsOwn) {
  AsyncEngine service(*engine_);
  ServiceResults results;
  Request sound = request(6, 8);
  sound.prompt.resize(40, 6);
  Request poisoned = sound;
  poisoned.prompt[2] = kPoison;
  for (int i = 0; i < 2; ++i) {
    const ServiceResults::Result result = results.wait(service.submit(poisoned, results.sink()));
    EXPECT_EQ(result.end, RequestEnd::failed);
    EXPECT_TRUE(result.tokens.empty());
    EXPECT_EQ(settled(service).pages_kept, 0);
    EXPECT_EQ(service.load().prefix_hits, 0U);
  }
  EXPECT_EQ(results.wait(service.submit(sound, results.sink())).end, RequestEnd::length);
  EXPECT_GT(settled(service).pages_kept, 0);
}

}  // namespace
}  // namespace megalith::engine
