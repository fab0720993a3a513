// Tiny random models in every form that a Hugging Face folder takes (tied and untied, sharded, bf16, f16 and f32, every
// scaled RoPE, no head_dim key, biases, a sliding window, text models of multimodal ones), against transformers in
// float32: tests/golden/tiny/, written by tools/make_tiny_models.py.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/engine/engine.h"

namespace megalith {
namespace {

// Greedy tokens are those of transformers, and logits are off by `limit` times their size.
void expect_what_transformers_writes(const std::string& model, const char* products, double limit) {
  const test::EnvironmentVariable variable("MEGALITH_PRODUCTS", products);
  const std::string folder = MEGALITH_SOURCE_DIR "/tests/golden/tiny/" + model;
  const auto golden = nlohmann::json::parse(file_read(folder + "/golden.json"));
  const auto prompt = golden.at("prompt").get<std::vector<int>>();
  const auto greedy = golden.at("greedy").get<std::vector<int>>();
  engine::EngineOptions options{.num_workers = 2};
  options.decoder.max_seq_len = 128;
  engine::Engine engine(folder, options);

  const auto found = engine.generate(
      {{.prompt = prompt, .max_new_tokens = static_cast<int64_t>(greedy.size()), .ignore_stop_tokens = true}});
  EXPECT_EQ(found.tokens[0], greedy);

  // The last positions of the prompt: logits after each of them, as the prompt's first part goes on to the whole.
  const Weights logits = Weights::open(folder + "/logits.safetensors");
  const WeightTensor& wanted = logits.get("logits");
  const int64_t positions = wanted.shape[0], vocab = wanted.shape[1];
  for (int64_t i = 0; i < positions; ++i) {
    const auto length = static_cast<std::ptrdiff_t>(prompt.size()) - static_cast<std::ptrdiff_t>(positions - 1 - i);
    engine.generate(
        {{.prompt = {prompt.begin(), prompt.begin() + length}, .max_new_tokens = 1, .ignore_stop_tokens = true}});
    double square = 0, error = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      const double want = element_load(wanted.bytes.data(), wanted.dtype, i * vocab + v);
      square += want * want;
      error += (engine.logits()[v] - want) * (engine.logits()[v] - want);
    }
    EXPECT_LT(std::sqrt(error / square), limit) << "position " << length;
  }
}

class TinyModel : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyModel, WritesWhatTransformersWrites) { expect_what_transformers_writes(GetParam(), "f32", 1e-4); }

// Roundings to bf16 are of 2^-9, and there are a dozen one behind the other.
TEST(RoundingTinyModel, WritesWhatTransformersWrites) {
  for (const char* model : {"qwen3_tied", "llama_untied"}) {
    SCOPED_TRACE(model);
    expect_what_transformers_writes(model, "bf16", 0x1p-6);
    expect_what_transformers_writes(model, "amx", 0x1p-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, TinyModel,
                         ::testing::Values("qwen3_tied", "qwen3_sharded", "llama_tied", "llama_untied", "qwen2_tied",
                                           "qwen2_sharded", "mistral_window", "mistral_sharded", "llama_biases",
                                           "qwen3_biases", "llama_dynamic", "mistral3", "qwen2_5_vl"),
                         [](const auto& golden) { return std::string(golden.param); });

// Mistral's window is full attention for texts that fit into it; longer ones are refused before anything is compiled.
TEST(SlidingWindow, BoundsTheContext) {
  const std::string folder = MEGALITH_SOURCE_DIR "/tests/golden/tiny/mistral_window";
  const ModelConfig config = config_read(folder);
  EXPECT_EQ(DecoderOptions{}.resolved(config).max_seq_len, 128);
  EXPECT_EQ(DecoderOptions{.max_seq_len = 128}.resolved(config).max_seq_len, 128);
  try {
    build_decoder(config, {.max_seq_len = 129});
    FAIL() << "a text of 129 tokens was allowed";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "--max-seq-len is 129, but the model has a \"sliding_window\" of 128, and sequences longer than the window "
        "are not supported: try --max-seq-len 128");
  }
}

}  // namespace
}  // namespace megalith
