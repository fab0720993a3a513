// RoPE against values computed with 50 decimal digits.
#include "megalith/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/scratch.h"

namespace megalith {
namespace {

struct Row {
  int64_t position;
  int64_t pair;
  double frequency;
  double cos;
  double sin;
};

// rope_theta 1e6, head_dim 128, no scaling.
constexpr Row kQwen3[] = {
    {0, 5, 0.33982083289425596, 1, 0},
    {1, 0, 1.0, 0.540302306, 0.841470985},
    {1, 32, 0.001, 0.9999995, 0.000999999833},
    {7, 3, 0.5232991146814947, -0.867072311, -0.498182304},
    {1000, 1, 0.8058421877614819, -0.0236699049, 0.999719829},
    {4097, 17, 0.025482967479793464, -0.744400201, -0.667733735},
    {40959, 2, 0.6493816315762113, 0.268614027, 0.963247894},
    {40959, 63, 1.2409377607517195e-06, 0.998708557, 0.0508056876},
    {40959, 40, 0.00017782794100389227, 0.53990732, 0.841724471},
};
// rope_theta 5e5, head_dim 64, llama3 scaling by 32: pairs 0-14 are kept, 15-17 mixed, the rest slowed.
constexpr Row kLlama[] = {
    {0, 5, 0.12868737343265052, 1, 0},
    {1, 0, 1.0, 0.540302306, 0.841470985},
    {1, 16, 0.0004295567965593682, 0.999999908, 0.000429556783},
    {7, 3, 0.2922278225730151, -0.457159184, 0.889384889},
    {1000, 1, 0.6636012376960885, -0.748374879, -0.663275991},
    {4097, 17, 9.708287802627673e-05, 0.921935414, 0.387343635},
    {40959, 2, 0.44036660267178046, -0.460485227, -0.887667368},
    {40959, 31, 9.41830672543491e-08, 0.999992559, 0.00385763468},
    {40959, 16, 0.0004295567965593682, 0.310251177, -0.95065462},
};

void expect_rows(const ModelConfig& config, std::span<const Row> rows, int64_t max_seq_len, int64_t prompt_tokens = 0) {
  const int64_t half_dim = config.head_dim / 2;
  std::vector<float> cos(max_seq_len * half_dim), sin(max_seq_len * half_dim);
  rope_fill(cos, sin, config, max_seq_len, prompt_tokens);
  for (const Row& row : rows) {
    const std::vector<double> frequencies = rope_frequencies(config, std::max(prompt_tokens, row.position + 1));
    EXPECT_NEAR(frequencies[row.pair] / row.frequency, 1, 1e-14) << row.pair;
    EXPECT_NEAR(cos[row.position * half_dim + row.pair], row.cos, 1e-7) << row.position << " " << row.pair;
    EXPECT_NEAR(sin[row.position * half_dim + row.pair], row.sin, 1e-7) << row.position << " " << row.pair;
  }
}

ModelConfig published(const char* model) {
  return config_read(std::string(MEGALITH_SOURCE_DIR "/models/shapes/") + model);
}

TEST(RopeTest, Plain) { expect_rows(published("Qwen3-0.6B"), kQwen3, 40960); }
TEST(RopeTest, Llama3Scaling) { expect_rows(published("Llama-3.2-1B"), kLlama, 40960); }

// Qwen3 as its makers extend it: factor 4 of 32768.
constexpr Row kYarn[] = {
    {0, 5, 0.33982083289425594, 1.13862944, 0},
    {1, 0, 1.0, 0.61520411, 0.958123633},
    {7, 30, 0.0010643609812470018, 1.13859783, 0.00848331072},
    {1000, 40, 4.445698525097307e-05, 1.13750441, 0.0506033593},
    {4097, 33, 0.00045032357551376925, -0.308291939, 1.09609903},
    {131071, 45, 1.510740975595332e-05, -0.453186292, 1.04455693},
    {131071, 63, 3.1023444018792989e-07, 1.13768823, 0.0462870327},
};
TEST(RopeTest, Yarn) {
  ModelConfig config = published("Qwen3-0.6B");
  config.rope_scaling = {
      .kind = RopeKind::yarn, .factor = 4, .original_max_position = 32768, .attention_factor = 1.1386294361119891};
  expect_rows(config, kYarn, 131072);
}

// theta 1e4, heads of 64, bounds that are not rounded; mscale 0.707 over 1.5.
constexpr Row kYarnUnrounded[] = {
    {0, 5, 0.18680586951403961, 0.874306217, 0},
    {1, 0, 1.0, 0.472389665, 0.735703313},
    {7, 6, 0.11854754902134257, 0.59015591, 0.645079346},
    {100, 9, 0.022744739263541407, -0.565698948, 0.666630378},
    {255, 12, 0.0039528470752104742, 0.466506729, 0.739447654},
    {2000, 31, 1.666901790204155e-05, 0.873820399, 0.029142253},
};
constexpr Row kLinear[] = {
    {1, 0, 0.25, 0.968912422, 0.247403959},
    {7, 6, 0.04445698525097307, 0.951967152, 0.306200167},
    {4097, 20, 0.00079056941504209483, -0.995263262, -0.0972164521},
    {8191, 31, 3.3338035804083101e-05, 0.962946991, 0.269690734},
};
constexpr Row kDynamic4096[] = {
    {1, 0, 1.0, 0.540302306, 0.841470985},
    {7, 6, 0.14376525887219034, 0.534942352, 0.84488856},
    {4095, 20, 0.0015566100700398993, 0.995850268, 0.0910068356},
    {4095, 31, 4.4450714405444134e-05, 0.983479019, 0.181022153},
};
constexpr Row kDynamic3000[] = {{2999, 20, 0.0020692589832983191, 0.997000111, -0.077400126}};

// A Llama with heads of 64 and 2048 positions, and this RoPE.
ModelConfig llama(const std::string& rope) {
  return config_parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 10, "hidden_size": 128,
      "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 2048,
      "rope_parameters": )" +
                          rope + "}",
                      "config.json");
}

TEST(RopeTest, YarnOfAllSettings) {
  const ModelConfig config = llama(R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 256,
      "beta_fast": 16, "beta_slow": 2, "truncate": false, "mscale": 0.707, "mscale_all_dim": 1.5})");
  ASSERT_TRUE(config.rope_scaling);
  EXPECT_NEAR(config.rope_scaling->attention_factor, 0.87430621687038244, 1e-15);
  expect_rows(config, kYarnUnrounded, 2048);
}

TEST(RopeTest, Linear) { expect_rows(llama(R"({"rope_type": "linear", "factor": 4})"), kLinear, 8192); }

// The length of the step that writes a row says how far frequencies are stretched: of the prompt, or of the sequence up
// to a further token. Up to the model's context they are not.
TEST(RopeTest, Dynamic) {
  const ModelConfig config = llama(R"({"rope_type": "dynamic", "factor": 2})");
  expect_rows(config, kDynamic4096, 4096, 4096);
  expect_rows(config, kDynamic3000, 4096, 3000);
  expect_rows(config, kDynamic3000, 4096, 10);
  expect_rows(config, std::span(kDynamic4096).last(2), 4096, 10);
  EXPECT_EQ(rope_prompt(config, 2048), 0) << "all prompts up to the model's context share a table";
  EXPECT_EQ(rope_prompt(config, 2049), 2049);
  EXPECT_EQ(rope_prompt(llama(R"({"rope_type": "linear", "factor": 2})"), 2049), 0);
  const ModelConfig plain = llama("{}");
  std::vector<float> cos(2048 * 32), sin(2048 * 32), plain_cos(2048 * 32), plain_sin(2048 * 32);
  rope_fill(cos, sin, config, 2048, 2048);
  rope_fill(plain_cos, plain_sin, plain, 2048);
  EXPECT_EQ(cos, plain_cos);
  EXPECT_EQ(sin, plain_sin);
  for (const int64_t length : {1, 100, 2048})
    EXPECT_EQ(rope_frequencies(config, length), rope_frequencies(plain, length)) << length;
  EXPECT_NE(rope_frequencies(config, 2049), rope_frequencies(plain, 2049));
}

// Values at the edge of what a file may say give finite tables, or none.
TEST(RopeTest, IsFinite) {
  for (const char* rope :
       {R"({"rope_type": "yarn", "factor": 1000000, "original_max_position_embeddings": 1})",
        R"({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 1})",
        R"({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 64})",
        R"({"rope_type": "yarn", "factor": 4, "attention_factor": 0, "rope_theta": 1000000000000000})",
        R"({"rope_type": "dynamic", "factor": 1000000})", R"({"rope_type": "linear", "factor": 0.000001})"}) {
    const ModelConfig config = llama(rope);
    std::vector<float> cos(128 * 32), sin(128 * 32);
    rope_fill(cos, sin, config, 128);
    for (size_t i = 0; i < cos.size(); ++i) ASSERT_TRUE(std::isfinite(cos[i]) && std::isfinite(sin[i])) << rope << i;
  }
}

TEST(RopeTest, RefusesTooLongAContext) {
  const ModelConfig config = published("Qwen3-0.6B");
  std::vector<float> table(64);
  for (int64_t positions : {int64_t{0}, int64_t{-1}, int64_t{40961}})
    EXPECT_THAT(user_error([&] { rope_fill(table, table, config, positions); }),
                testing::HasSubstr("positions was asked for, this model has 1 to 40960"));
}

}  // namespace
}  // namespace megalith
