// generation_config.json: whatever changes a text is done or told of, and nothing else is in the way.
#include "megalith/model/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/model/config.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GenerationConfig parsed(const std::string& json) { return generation_config_parse(json, "g.json"); }
std::string error_of(const std::string& json) {
  return user_error([&] { parsed(json); });
}

// Every setting of transformers that a text may depend on, at a value that changes it.
TEST(GenerationConfigTest, WhatIsNotDoneIsTold) {
  const std::pair<const char*, const char*> kSettings[] = {{"num_beams", "4"},
                                                           {"num_beam_groups", "2"},
                                                           {"num_return_sequences", "3"},
                                                           {"no_repeat_ngram_size", "3"},
                                                           {"encoder_no_repeat_ngram_size", "2"},
                                                           {"typical_p", "0.9"},
                                                           {"epsilon_cutoff", "0.0003"},
                                                           {"eta_cutoff", "0.0003"},
                                                           {"top_h", "0.4"},
                                                           {"penalty_alpha", "0.6"},
                                                           {"diversity_penalty", "0.5"},
                                                           {"guidance_scale", "1.5"},
                                                           {"length_penalty", "2"},
                                                           {"encoder_repetition_penalty", "1.2"},
                                                           {"exponential_decay_length_penalty", "[5, 1.5]"},
                                                           {"min_length", "10"},
                                                           {"min_new_tokens", "10"},
                                                           {"max_time", "2.5"},
                                                           {"bad_words_ids", "[[1, 2]]"},
                                                           {"force_words_ids", "[[1]]"},
                                                           {"constraints", "[{}]"},
                                                           {"suppress_tokens", "[1]"},
                                                           {"begin_suppress_tokens", "[1]"},
                                                           {"sequence_bias", R"([[[1], -10.0]])"},
                                                           {"forced_bos_token_id", "1"},
                                                           {"forced_eos_token_id", "[2]"},
                                                           {"forced_decoder_ids", "[[1, 2]]"},
                                                           {"watermarking_config", R"({"bias": 2.5})"},
                                                           {"token_healing", "true"},
                                                           {"dola_layers", "\"low\""}};
  for (const auto& [name, value] : kSettings) {
    const auto config = parsed(std::string("{\"") + name + "\": " + value + "}");
    ASSERT_EQ(config.unsupported.size(), 1u) << name;
    EXPECT_THAT(config.unsupported[0], HasSubstr(std::string("\"") + name + "\""));
  }
  // Whatever its type: it is not read, so it is not refused.
  EXPECT_THAT(parsed(R"({"num_beams": "4", "min_length": NaN, "typical_p": [1]})").unsupported,
              ElementsAre("\"num_beams\" (\"4\")", "\"typical_p\" (an array of 1)", "\"min_length\" (NaN)"));
}

TEST(GenerationConfigTest, WhatChangesNothingIsNotTold) {
  const GenerationConfig config = parsed(R"({
    "num_beams": 1, "num_beam_groups": 1.0, "num_return_sequences": 1, "no_repeat_ngram_size": 0, "typical_p": 1.0,
    "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": null, "penalty_alpha": null, "guidance_scale": 1,
    "length_penalty": 1.0, "encoder_repetition_penalty": 1.0, "exponential_decay_length_penalty": null,
    "min_length": 0, "min_new_tokens": null, "bad_words_ids": null, "suppress_tokens": [], "sequence_bias": {},
    "forced_bos_token_id": null, "token_healing": false, "early_stopping": true, "max_length": 20,
    "max_new_tokens": 2048, "use_cache": false, "cache_implementation": "static", "renormalize_logits": true,
    "remove_invalid_values": true, "output_scores": true, "return_dict_in_generate": true, "is_assistant": true,
    "num_assistant_tokens": 20, "prompt_lookup_num_tokens": 3, "decoder_start_token_id": -1, "compile_config": {},
    "transformers_version": "5.24.0", "_from_model_config": true, "somebody's own": [NaN]})");
  EXPECT_THAT(config.unsupported, IsEmpty());
  EXPECT_THAT(config.stop_strings, IsEmpty());
}

TEST(GenerationConfigTest, IdsThatNoTokenHasAreNone) {
  EXPECT_EQ(parsed(R"({"pad_token_id": -1})").pad_token_id, std::nullopt);
  for (const char* value : {"-1", "99999999999", "1e300", "NaN", "1.5", "[1]", "\"x\"", "null", "true", "{}"})
    for (const char* key : {"pad_token_id", "bos_token_id"})
      EXPECT_EQ(error_of(std::string("{\"") + key + "\": " + value + "}"), "") << value;
  EXPECT_EQ(parsed(R"({"bos_token_id": 5.0})").bos_token_id, 5);
  EXPECT_THAT(parsed(R"({"eos_token_id": -1})").eos_token_ids, IsEmpty());
  EXPECT_THAT(parsed(R"({"eos_token_id": [7, -1, 8.0, null, 99999999999, 0.5]})").eos_token_ids, ElementsAre(7, 8));
  EXPECT_THAT(error_of(R"({"eos_token_id": "</s>"})"),
              HasSubstr("g.json: \"eos_token_id\" is \"</s>\", want the id of a token"));

  const auto config = [](const std::string& ids) {
    std::string json = file_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B/config.json");
    const std::string key = "\"eos_token_id\": 151645";
    EXPECT_NE(json.find(key), std::string::npos);
    return config_parse(json.replace(json.find(key), key.size(), ids), "config.json");
  };
  EXPECT_THAT(config(R"("eos_token_id": 151936)").eos_token_ids, IsEmpty());
  EXPECT_THAT(config(R"("eos_token_id": [151935, -1, 151936], "pad_token_id": -1)").eos_token_ids, ElementsAre(151935));
}

TEST(GenerationConfigTest, StopStrings) {
  EXPECT_THAT(parsed(R"({"stop_strings": "-"})").stop_strings, ElementsAre("-"));
  EXPECT_THAT(parsed(R"({"stop_strings": ["a", "", "b\n"]})").stop_strings, ElementsAre("a", "b\n"));
  EXPECT_THAT(parsed(R"({"stop_strings": null})").stop_strings, IsEmpty());
  EXPECT_THAT(error_of(R"({"stop_strings": [1]})"), HasSubstr("\"stop_strings[0]\" is 1, want a string"));
  std::string many = "{\"stop_strings\": [\"a\"";
  for (int i = 0; i < 64; ++i) many += ", \"a\"";
  EXPECT_THAT(error_of(many + "]}"), HasSubstr("\"stop_strings\" has 65 entries, want at most 64"));
  EXPECT_THAT(error_of("{\"stop_strings\": \"" + std::string(257, 'a') + "\"}"),
              HasSubstr("\"stop_strings\" has 257 bytes, want at most 256"));
}

TEST(GenerationConfigTest, OtherEnginesSpellings) {
  EXPECT_EQ(parsed(R"({"do_sample": true, "top_k": -1})").top_k, 0);
  EXPECT_EQ(parsed(R"({"do_sample": true, "top_k": 50.0})").top_k, 50);
  EXPECT_EQ(parsed(R"({"do_sample": true, "top_k": 1e12})").top_k, 1 << 24);
  EXPECT_EQ(parsed(R"({"do_sample": true, "top_p": 1.5})").top_p, 1);
  EXPECT_EQ(parsed(R"({"top_k": null, "temperature": null, "do_sample": null})").top_k, 50);
  EXPECT_THAT(error_of(R"({"do_sample": true, "temperature": Infinity})"),
              HasSubstr("\"temperature\" is Infinity, want 0 to 1000"));
}

TEST(GenerationConfigTest, WhereNothingIsDrawnNothingReadsHow) {
  for (const char* sampling : {"", R"("do_sample": false, )", R"("do_sample": null, )"})
    for (const char* setting :
         {R"("temperature": -1)", R"("temperature": Infinity)", R"("top_k": -7)", R"("top_p": NaN)", R"("min_p": "x")"})
      EXPECT_EQ(error_of(std::string("{") + sampling + setting + "}"), "") << sampling << setting;
}

using GenerationConfigFileTest = ScratchTest;

// Models from before generation_config.json say it in config.json; where there are both, the newer one counts.
TEST_F(GenerationConfigFileTest, OlderModelsSayItInConfigJson) {
  EXPECT_EQ(generation_config_read(folder()).file, "");
  write("config.json", R"({"do_sample": true, "temperature": 0.5, "num_beams": 4, "eos_token_id": 3})");
  const GenerationConfig old = generation_config_read(folder());
  EXPECT_TRUE(old.do_sample);
  EXPECT_EQ(old.temperature, 0.5);
  EXPECT_THAT(old.unsupported, ElementsAre("\"num_beams\" (4)"));
  EXPECT_EQ(old.file, folder() + "/config.json");
  write("generation_config.json", "{}");
  EXPECT_FALSE(generation_config_read(folder()).do_sample);
  EXPECT_EQ(generation_config_read(folder()).file, folder() + "/generation_config.json");
}

}  // namespace
}  // namespace megalith
