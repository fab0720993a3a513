// config.json: published files are read, and whatever would change the result unnoticed is refused by its name.
#include "megalith/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/scratch.h"

namespace megalith {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kShapes = MEGALITH_SOURCE_DIR "/models/shapes/";

json shape(const std::string& name) { return json::parse(file_read(kShapes + name + "/config.json")); }

// The published file of Qwen3-0.6B or Llama-3.2-1B, changed.
ModelConfig changed(const std::string& name, const std::function<void(json&)>& change) {
  json document = shape(name);
  change(document);
  return config_parse(document.dump(), "config.json");
}
std::string qwen_error(const std::string& key, const json& value) {
  return user_error([&] { changed("Qwen3-0.6B", [&](json& document) { document[key] = value; }); });
}
std::string qwen_error_without(const std::string& key) {
  return user_error([&] { changed("Qwen3-0.6B", [&](json& document) { document.erase(key); }); });
}
std::string llama_error(const std::string& key, const json& value) {
  return user_error([&] { changed("Llama-3.2-1B", [&](json& document) { document[key] = value; }); });
}

TEST(ConfigTest, Qwen3) {
  const ModelConfig small = config_read(kShapes + "Qwen3-0.6B");
  EXPECT_EQ(small.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(small.vocab_size, 151936);
  EXPECT_EQ(small.hidden_size, 1024);
  EXPECT_EQ(small.intermediate_size, 3072);
  EXPECT_EQ(small.num_layers, 28);
  EXPECT_EQ(small.num_heads, 16);
  EXPECT_EQ(small.num_kv_heads, 8);
  EXPECT_EQ(small.head_dim, 128);
  EXPECT_EQ(small.max_position_embeddings, 40960);
  EXPECT_EQ(small.rms_norm_eps, 1e-6);
  EXPECT_EQ(small.rope_theta, 1e6);
  EXPECT_FALSE(small.rope_scaling);
  EXPECT_TRUE(small.tie_word_embeddings);
  EXPECT_TRUE(small.qk_norm);
  EXPECT_FALSE(small.qkv_bias);
  EXPECT_FALSE(small.sliding_window);
  EXPECT_EQ(small.dtype, DType::bf16);
  EXPECT_THAT(small.eos_token_ids, ElementsAre(151645));
  EXPECT_EQ(small.bos_token_id, 151643);

  const ModelConfig large = config_read(kShapes + "Qwen3-8B");
  EXPECT_EQ(large.num_layers, 36);
  EXPECT_EQ(large.hidden_size, 4096);
  EXPECT_EQ(large.intermediate_size, 12288);
  EXPECT_FALSE(large.tie_word_embeddings);
}

TEST(ConfigTest, Llama) {
  const ModelConfig config = config_read(kShapes + "Llama-3.2-1B");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.num_layers, 16);
  EXPECT_EQ(config.num_heads, 32);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_FALSE(config.qk_norm);
  ASSERT_TRUE(config.rope_scaling);
  EXPECT_EQ(config.rope_scaling->factor, 32);
  EXPECT_EQ(config.rope_scaling->low_freq_factor, 1);
  EXPECT_EQ(config.rope_scaling->high_freq_factor, 4);
  EXPECT_EQ(config.rope_scaling->original_max_position, 8192);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(128001, 128008, 128009));
}

TEST(ConfigTest, Qwen2) {
  auto read = [](const std::function<void(json&)>& change) {
    return changed("Qwen3-0.6B", [&](json& document) {
      document["architectures"] = {"Qwen2ForCausalLM"};
      document.erase("head_dim");
      change(document);
    });
  };
  const ModelConfig config = read([](json& document) { document["sliding_window"] = 32; });
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_FALSE(config.sliding_window) << "the window is switched off";
  EXPECT_THAT(user_error([&] { read([](json& document) { document.erase("num_key_value_heads"); }); }),
              HasSubstr("lacks \"num_key_value_heads\""));
  EXPECT_THAT(user_error([&] { read([](json& document) { document["use_sliding_window"] = true; }); }),
              HasSubstr("sliding windows are not supported"));
}

TEST(ConfigTest, Mistral) {
  auto read = [](const std::function<void(json&)>& change) {
    return changed("Llama-3.2-1B", [&](json& document) {
      document["architectures"] = {"MistralForCausalLM"};
      document.erase("rope_scaling");
      document.erase("head_dim");
      change(document);
    });
  };
  const ModelConfig config = read([](json& document) { document["sliding_window"] = nullptr; });
  EXPECT_FALSE(config.sliding_window);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(read([](json& document) { document["sliding_window"] = 4000; }).sliding_window, 4000);
  EXPECT_EQ(read([](json&) {}).sliding_window, 4096) << "what transformers takes where the file says nothing";
  EXPECT_EQ(read([](json& document) { document["head_dim"] = 160; }).head_dim, 160);
  EXPECT_THAT(user_error([&] { read([](json& document) { document["sliding_window"] = 0; }); }),
              HasSubstr("\"sliding_window\" is 0, want 1 to"));
}

TEST(ConfigTest, DefaultsOfLlama) {
  const ModelConfig config = config_parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 10, "hidden_size": 8,
      "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32})",
                                          "config.json");
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_FALSE(config.bos_token_id);
}

// transformers 5 writes the same model with other keys.
TEST(ConfigTest, RopeParameters) {
  const ModelConfig config = changed("Llama-3.2-1B", [](json& document) {
    json rope = document["rope_scaling"];
    rope["rope_theta"] = 500000.0;
    document.erase("rope_scaling");
    document.erase("rope_theta");
    document.erase("torch_dtype");
    document["rope_parameters"] = rope;
    document["dtype"] = "float16";
    document["layer_types"] = std::vector<std::string>(16, "full_attention");
  });
  EXPECT_EQ(config.rope_theta, 500000);
  ASSERT_TRUE(config.rope_scaling);
  EXPECT_EQ(config.rope_scaling->factor, 32);
  EXPECT_EQ(config.dtype, DType::f16);

  EXPECT_EQ(changed("Qwen3-0.6B",
                    [](json& document) {
                      document.erase("rope_theta");
                      document["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 12345}};
                    })
                .rope_theta,
            12345);
}

TEST(ConfigTest, OldSpellings) {
  EXPECT_TRUE(changed("Llama-3.2-1B", [](json& document) {
                document["rope_scaling"].erase("rope_type");
                document["rope_scaling"]["type"] = "llama3";
              }).rope_scaling);
  EXPECT_EQ(changed("Qwen3-0.6B", [](json& document) { document["torch_dtype"] = "torch.float32"; }).dtype, DType::f32);
}

TEST(ConfigTest, RefusesByName) {
  EXPECT_THAT(
      qwen_error("architectures", json::array({"MambaForCausalLM"})),
      HasSubstr("config.json: \"architectures[0]\" is \"MambaForCausalLM\", which is not supported; supported are "
                "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"));
  EXPECT_THAT(qwen_error("architectures", json::array()), HasSubstr("has 0 entries, want one"));
  EXPECT_THAT(qwen_error("hidden_act", "gelu"), HasSubstr("\"hidden_act\" is \"gelu\", supported is \"silu\""));
  EXPECT_THAT(qwen_error("attention_bias", true), HasSubstr("\"attention_bias\" is true: a bias in attention"));
  EXPECT_THAT(llama_error("mlp_bias", true), HasSubstr("\"mlp_bias\" is true: a bias in the MLP"));
  EXPECT_THAT(qwen_error("use_mrope", true), HasSubstr("\"use_mrope\" is true: RoPE over several axes"));
  EXPECT_THAT(qwen_error("use_sliding_window", true), HasSubstr("sliding windows are not supported"));
  EXPECT_THAT(llama_error("sliding_window", 4096), HasSubstr("\"sliding_window\" is 4096: sliding windows are not"));
  EXPECT_EQ(qwen_error("sliding_window", 4096), "") << "a window that is switched off changes nothing";
  EXPECT_THAT(qwen_error("layer_types", json::array({"full_attention", "sliding_attention"})),
              HasSubstr("\"layer_types[1]\" is \"sliding_attention\""));
  EXPECT_THAT(qwen_error("quantization_config", {{"quant_method", "fp8"}}),
              HasSubstr("asks for quantized weights (\"fp8\")"));
  EXPECT_THAT(qwen_error("torch_dtype", "float8_e4m3fn"), HasSubstr("\"torch_dtype\" is \"float8_e4m3fn\", supported"));
}

TEST(ConfigTest, RefusesUnknownRope) {
  EXPECT_THAT(qwen_error("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}),
              HasSubstr("\"rope_scaling.rope_type\" is \"yarn\", supported are \"default\" and \"llama3\""));
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "linear"}, {"factor", 4}}), HasSubstr("is \"linear\""));
  EXPECT_THAT(qwen_error("rope_scaling", {{"rope_type", "llama3"}}), HasSubstr("\"rope_scaling\" lacks \"factor\""));
  EXPECT_THAT(qwen_error("partial_rotary_factor", 0.5), HasSubstr("rotating a part of each head"));
  EXPECT_THAT(qwen_error("rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}),
              HasSubstr("gives one kind of layer its own RoPE"));
  EXPECT_THAT(qwen_error("rope_parameters", {{"rope_theta", 5}}), HasSubstr("but the top-level \"rope_theta\" is"));
  EXPECT_THAT(llama_error("rope_parameters", {{"rope_theta", 500000}}), HasSubstr("stands beside \"rope_scaling\""));
  EXPECT_THAT(qwen_error("rope_scaling", {{"rope_type", "llama3"},
                                          {"factor", 8},
                                          {"low_freq_factor", 4},
                                          {"high_freq_factor", 4},
                                          {"original_max_position_embeddings", 8192}}),
              HasSubstr("want the low one smaller"));
}

TEST(ConfigTest, ChecksRanges) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "max_position_embeddings"}) {
    EXPECT_THAT(qwen_error(key, 0), HasSubstr(std::string("\"") + key + "\" is 0, want 1 to")) << key;
    EXPECT_THAT(qwen_error(key, -5), HasSubstr("is -5, want 1 to")) << key;
    EXPECT_THAT(qwen_error(key, int64_t{1} << 40), HasSubstr("is 1099511627776, want 1 to")) << key;
    EXPECT_THAT(qwen_error(key, "many"), HasSubstr("is \"many\", want a whole number")) << key;
    EXPECT_THAT(qwen_error(key, 2.5), HasSubstr("is 2.5, want a whole number")) << key;
    EXPECT_THAT(qwen_error_without(key), HasSubstr(std::string("lacks \"") + key + "\"")) << key;
  }
  EXPECT_THAT(qwen_error("num_key_value_heads", 3), HasSubstr("\"num_attention_heads\" is 16, want a multiple of"));
  EXPECT_THAT(qwen_error("head_dim", 127), HasSubstr("has heads of 127, want an even number"));
  EXPECT_THAT(qwen_error_without("head_dim"), HasSubstr("lacks \"head_dim\""));
  EXPECT_THAT(user_error([] {
                changed("Llama-3.2-1B", [](json& document) {
                  document.erase("head_dim");
                  document["hidden_size"] = 2049;
                });
              }),
              HasSubstr("\"hidden_size\" is 2049, want a multiple of num_attention_heads, which is 32"));
  EXPECT_THAT(qwen_error("rms_norm_eps", -1), HasSubstr("\"rms_norm_eps\" is -1, want"));
  EXPECT_THAT(qwen_error("rope_theta", 0), HasSubstr("\"rope_theta\" is 0, want 1 to"));
  EXPECT_THAT(qwen_error("tie_word_embeddings", 1), HasSubstr("\"tie_word_embeddings\" is 1, want true or false"));
}

using ConfigFileTest = ScratchTest;

TEST_F(ConfigFileTest, Files) {
  EXPECT_THAT(user_error([&] { config_read(folder()); }), HasSubstr("is not a model folder: it has no config.json"));
  write("config.json", "{\"vocab_size\": 1,");
  EXPECT_THAT(user_error([&] { config_read(folder()); }), HasSubstr(folder() + "/config.json is not JSON, near byte"));
  write("config.json", std::string((16 << 20) + 1, ' '));
  EXPECT_THAT(user_error([&] { config_read(folder()); }), HasSubstr("bytes, want at most 16777216"));
}

TEST_F(ConfigFileTest, Generation) {
  const GenerationConfig absent = generation_config_read(folder());
  EXPECT_FALSE(absent.do_sample);
  EXPECT_EQ(absent.temperature, 1);
  EXPECT_EQ(absent.top_k, 50);
  EXPECT_EQ(absent.top_p, 1);
  EXPECT_TRUE(absent.eos_token_ids.empty());

  write("generation_config.json", R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
      "pad_token_id": 151643, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"})");
  const GenerationConfig config = generation_config_read(folder());
  EXPECT_TRUE(config.do_sample);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_EQ(config.min_p, 0);
  EXPECT_EQ(config.repetition_penalty, 1);
  EXPECT_EQ(config.presence_penalty, 0);
  EXPECT_EQ(config.frequency_penalty, 0);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(151645, 151643));
  EXPECT_EQ(config.bos_token_id, 151643);
  EXPECT_EQ(config.pad_token_id, 151643);

  const GenerationConfig penalties = generation_config_parse(
      R"({"do_sample": true, "min_p": 0.05, "repetition_penalty": 1.1, "presence_penalty": -0.5,
          "frequency_penalty": 1.5})",
      "g.json");
  EXPECT_EQ(penalties.min_p, 0.05);
  EXPECT_EQ(penalties.repetition_penalty, 1.1);
  EXPECT_EQ(penalties.presence_penalty, -0.5);
  EXPECT_EQ(penalties.frequency_penalty, 1.5);

  auto error = [](const char* text) { return user_error([&] { generation_config_parse(text, "g.json"); }); };
  EXPECT_THAT(error(R"({"do_sample": true, "min_p": 2})"), HasSubstr("\"min_p\" is 2, want 0 to 1"));
  EXPECT_THAT(error(R"({"repetition_penalty": 0})"), HasSubstr("\"repetition_penalty\" is 0, want 0.001 to"));
  EXPECT_THAT(error(R"({"presence_penalty": 3})"), HasSubstr("\"presence_penalty\" is 3, want -2 to 2"));
  EXPECT_THAT(error(R"({"do_sample": true, "temperature": -1})"),
              HasSubstr("g.json: \"temperature\" is -1, want 0 to"));
  EXPECT_THAT(error(R"({"do_sample": true, "top_p": -0.5})"), HasSubstr("\"top_p\" is -0.5, want 0 to 1"));
  EXPECT_THAT(error(R"({"do_sample": true, "top_k": -2})"), HasSubstr("\"top_k\" is -2"));
}

}  // namespace
}  // namespace megalith
