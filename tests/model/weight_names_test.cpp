// The names that exporters give to a text model's tensors, and which of two output projections counts.
#include "megalith/model/weight_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megalith/base/error.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WeightNamesTest : public ScratchTest {
 protected:
  // A file of tensors of one number each.
  void write_weights(const std::map<std::string, float>& numbers) {
    std::vector<WeightTensor> tensors;
    for (const auto& [name, number] : numbers)
      tensors.push_back({name, DType::f32, {1}, std::as_bytes(std::span(&number, 1))});
    safetensors_write(folder() + "/model.safetensors", tensors);
  }
  Weights open(bool tied = false) {
    config_.tie_word_embeddings = tied;
    return open_weights(folder(), config_);
  }
  static double number(const Weights& weights, const char* name) {
    return element_load(weights.get(name).bytes.data(), DType::f32, 0);
  }

  ModelConfig config_;
};

TEST_F(WeightNamesTest, EveryPrefix) {
  struct Names {
    const char* prefix;
    const char* head;
  };
  constexpr Names kNames[] = {{"model.", "lm_head.weight"},
                              {"", "lm_head.weight"},
                              {"language_model.model.", "language_model.lm_head.weight"},
                              {"model.language_model.", "lm_head.weight"},
                              {"language_model.", "lm_head.weight"},
                              {"model.text_model.", "lm_head.weight"},
                              {"text_model.", "lm_head.weight"}};
  for (const auto& [prefix, head] : kNames) {
    SCOPED_TRACE(prefix);
    const std::string text = prefix;
    write_weights({{text + "embed_tokens.weight", 1},
                   {text + "layers.0.self_attn.q_proj.weight", 2},
                   {text + "layers.11.self_attn.q_proj.bias", 3},
                   {text + "norm.weight", 4},
                   {head, 5},
                   // Of other parts, and of tables that everybody makes.
                   {"vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight", 9},
                   {"visual.blocks.0.norm1.weight", 9},
                   {"multi_modal_projector.linear_1.weight", 9},
                   {text + "layers.0.self_attn.rotary_emb.inv_freq", 9},
                   {text + "rotary_emb.inv_freq", 9}});
    const Weights weights = open();
    EXPECT_THAT(weights.names(),
                ElementsAre("lm_head.weight", "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                            "model.layers.11.self_attn.q_proj.bias", "model.norm.weight"));
    EXPECT_EQ(number(weights, "model.embed_tokens.weight"), 1);
    EXPECT_EQ(number(weights, "model.layers.11.self_attn.q_proj.bias"), 3);
    EXPECT_EQ(number(weights, "lm_head.weight"), 5);
    EXPECT_EQ(weights.get("model.norm.weight").name, text + "norm.weight") << "as the file has it";
  }
}

// Another part's tower stands beside the text model, inside its namespace.
TEST_F(WeightNamesTest, OtherPartsInOneNamespace) {
  write_weights({{"model.language_model.layers.0.mlp.up_proj.weight", 1},
                 {"model.vision_tower.layers.0.mlp.up_proj.weight", 9},
                 {"model.visual.blocks.0.mlp.up_proj.weight", 9},
                 {"model.multi_modal_projector.linear_1.weight", 9}});
  EXPECT_THAT(open().names(), ElementsAre("model.layers.0.mlp.up_proj.weight"));
}

// Within the text model nothing is passed over: it would be another model than the one that was trained.
TEST_F(WeightNamesTest, UnknownPartsOfTheTextModelStay) {
  write_weights({{"model.layers.0.mlp.up_proj.weight", 1}, {"model.layers.0.mlp.experts.weight", 2}, {"model.x", 3}});
  EXPECT_THAT(open().names(), Contains("model.layers.0.mlp.experts.weight"));
  EXPECT_THAT(open().names(), Contains("model.x"));
}

TEST_F(WeightNamesTest, TiedWithEitherTensor) {
  write_weights({{"model.embed_tokens.weight", 1}, {"model.layers.0.x.weight", 2}});
  EXPECT_EQ(number(open(true), "model.embed_tokens.weight"), 1);
  write_weights({{"lm_head.weight", 1}, {"model.layers.0.x.weight", 2}});
  EXPECT_EQ(number(open(true), "model.embed_tokens.weight"), 1);
  EXPECT_THAT(open(true).names(), ElementsAre("model.embed_tokens.weight", "model.layers.0.x.weight"));
  EXPECT_TRUE(config_.tie_word_embeddings);
  EXPECT_THAT(open(false).names(), Contains("lm_head.weight"));
  write_weights({{"lm_head.weight", 1}, {"model.embed_tokens.weight", 1}, {"model.layers.0.x.weight", 2}});
  EXPECT_THAT(open(true).names(), ElementsAre("model.embed_tokens.weight", "model.layers.0.x.weight"));
  EXPECT_TRUE(config_.tie_word_embeddings);
}

// As transformers has it: two that differ are two, and the configuration is wrong.
TEST_F(WeightNamesTest, TiedWithAnOutputProjectionThatDiffers) {
  write_weights({{"lm_head.weight", 3}, {"model.embed_tokens.weight", 1}, {"model.layers.0.x.weight", 2}});
  const Weights weights = open(true);
  EXPECT_FALSE(config_.tie_word_embeddings);
  EXPECT_EQ(number(weights, "lm_head.weight"), 3);
  EXPECT_EQ(number(weights, "model.embed_tokens.weight"), 1);
}

TEST_F(WeightNamesTest, NamesInAnIndex) {
  const float number = 1;
  safetensors_write(
      folder() + "/1.safetensors",
      std::vector{WeightTensor{
          "language_model.model.layers.0.x.weight", DType::f32, {1}, std::as_bytes(std::span(&number, 1))}});
  write("model.safetensors.index.json", R"({"weight_map":{"language_model.model.layers.0.x.weight":"1.safetensors",
      "language_model.model.layers.1.x.weight":"2.safetensors","vision_tower.x":"3.safetensors"}})");
  const Weights weights = open();
  EXPECT_THAT(weights.names(), ElementsAre("model.layers.0.x.weight"));
  EXPECT_THAT(user_error([&] { weights.get("model.layers.1.x.weight"); }),
              HasSubstr("says that tensor \"language_model.model.layers.1.x.weight\" is in 2.safetensors, which is not "
                        "there"));
}

}  // namespace
}  // namespace megalith
