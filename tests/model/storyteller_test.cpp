// The bundled model's folder, read as a user's would be; its tokens against Hugging Face's (tools/make_goldens.py).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/model/config.h"
#include "megalith/model/safetensors.h"
#include "megalith/model/tokenizer.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using nlohmann::json;
using testing::ElementsAre;

const std::string kFolder = MEGALITH_SOURCE_DIR "/models/storyteller";
const std::string kGolden = MEGALITH_SOURCE_DIR "/tests/golden/tokenizer_storyteller.json";

TEST(StorytellerTest, Tokens) {
  const Tokenizer tokenizer = Tokenizer::open(kFolder);
  const json golden = json::parse(file_read(kGolden));
  ASSERT_GE(golden["encode"].size(), 300u);
  for (const json& row : golden["encode"]) {
    const std::vector<int> ids = row["ids"];
    EXPECT_EQ(tokenizer.encode(row["text"].get_ref<const std::string&>()), ids) << row["text"];
    EXPECT_EQ(tokenizer.decode(ids, false), row["decoded"].get_ref<const std::string&>()) << row["text"];
  }
  for (const json& row : golden["decode"]) {
    const std::vector<int> ids = row["ids"];
    EXPECT_EQ(tokenizer.decode(ids, false), row["decoded"].get_ref<const std::string&>());
  }
}

TEST(StorytellerTest, Weights) {
  const ModelConfig config = config_read(kFolder);
  const Weights weights = Weights::open(kFolder);
  const WeightTensor& embedding = weights.get("model.embed_tokens.weight");
  EXPECT_EQ(embedding.dtype, config.dtype);
  EXPECT_THAT(embedding.shape, ElementsAre(config.vocab_size, config.hidden_size));
  EXPECT_EQ(Tokenizer::open(kFolder).vocab_size(), config.vocab_size);
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    EXPECT_THAT(weights.get(fmt::format("model.layers.{}.self_attn.k_proj.weight", layer)).shape,
                ElementsAre(config.num_kv_heads * config.head_dim, config.hidden_size));
  EXPECT_THAT(generation_config_read(kFolder).eos_token_ids, ElementsAre(0));
}

}  // namespace
}  // namespace megalith
