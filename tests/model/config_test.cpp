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
  EXPECT_FALSE(config.o_bias);
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
  EXPECT_THAT(qwen_error("architectures", json::array({"A", "B"})), HasSubstr("has 2 entries, want one"));
  EXPECT_THAT(qwen_error("architectures", json::array({7})), HasSubstr("\"architectures[0]\" is 7, want a string"));
  EXPECT_THAT(qwen_error("hidden_act", "gelu"), HasSubstr("\"hidden_act\" is \"gelu\", supported is \"silu\""));
  EXPECT_THAT(qwen_error("layer_types", json::array({"full_attention", "linear_attention"})),
              HasSubstr("\"layer_types[1]\" is \"linear_attention\", supported are"));
  EXPECT_THAT(qwen_error("layer_types", json::array({"full_attention", "sliding_attention"})),
              HasSubstr("\"layer_types[1]\" is \"sliding_attention\", but no \"sliding_window\" is in use"));
  EXPECT_THAT(qwen_error("quantization_config", {{"quant_method", "fp8"}}),
              HasSubstr("asks for quantized weights (\"fp8\")"));
  EXPECT_THAT(qwen_error("torch_dtype", "float8_e4m3fn"), HasSubstr("\"torch_dtype\" is \"float8_e4m3fn\", supported"));
}

// What transformers takes by the model's type needs no name of a class.
TEST(ConfigTest, ArchitectureByItsType) {
  for (const json& names : {json(nullptr), json::array()})
    EXPECT_TRUE(changed("Qwen3-0.6B", [&](json& document) { document["architectures"] = names; }).qk_norm);
  EXPECT_TRUE(changed("Qwen3-0.6B", [](json& document) { document["architectures"] = {"Qwen3Model"}; }).qk_norm)
      << "saved without the output projection";
  EXPECT_THAT(
      user_error([] {
        changed("Qwen3-0.6B", [](json& document) {
          document.erase("architectures");
          document["model_type"] = "mamba";
        });
      }),
      HasSubstr("\"model_type\" is \"mamba\", which is not supported; supported are llama, mistral, qwen2, qwen3"));
  EXPECT_THAT(user_error([] {
                changed("Qwen3-0.6B", [](json& document) {
                  document.erase("architectures");
                  document.erase("model_type");
                });
              }),
              HasSubstr("lacks \"model_type\""));
}

// Keys that no layer of the architecture reads, and values that leave everything as it is.
TEST(ConfigTest, WhatChangesNothingIsRead) {
  const std::pair<const char*, json> kQwen[] = {{"bos_token_id", -1},
                                                {"eos_token_id", 151936},
                                                {"eos_token_id", json::array({-1, 151936})},
                                                {"pad_token_id", -1},
                                                {"sliding_window", 4096},
                                                {"sliding_window", -1},
                                                {"max_window_layers", 0},
                                                {"use_mrope", true},
                                                {"mlp_bias", true},
                                                {"pretraining_tp", 8},
                                                {"attention_dropout", 0.5},
                                                {"hidden_act", "swish"},
                                                {"rms_norm_eps", nullptr},
                                                {"rms_norm_eps", 0},
                                                {"rope_theta", nullptr},
                                                {"rope_scaling", json::object()},
                                                {"rope_parameters", json::object()},
                                                {"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}},
                                                {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 1}}},
                                                {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 1}}},
                                                {"partial_rotary_factor", 1.0},
                                                {"quantization_config", nullptr},
                                                {"layer_types", json::array({"full_attention"})},
                                                {"num_key_value_heads", nullptr},
                                                {"max_position_embeddings", nullptr},
                                                {"text_config", {{"model_type", "gemma3_text"}}}};
  for (const auto& [key, value] : kQwen) {
    EXPECT_EQ(qwen_error(key, value), "") << key << " " << value;
    if (user_error([&, &k = key, &v = value] { changed("Qwen3-0.6B", [&](json& d) { d[k] = v; }); }).empty()) {
      const ModelConfig config = changed("Qwen3-0.6B", [&, &k = key, &v = value](json& d) { d[k] = v; });
      EXPECT_FALSE(config.rope_scaling) << key;
      EXPECT_FALSE(config.sliding_window) << key;
      EXPECT_FALSE(config.has_biases()) << key;
    }
  }
  EXPECT_THAT(changed("Qwen3-0.6B",
                      [](json& document) {
                        document["eos_token_id"] = {-1, 7, 151936};
                      })
                  .eos_token_ids,
              ElementsAre(7));
}

// What transformers takes where a key is missing or null.
TEST(ConfigTest, DefaultsOfTheClasses) {
  auto without = [](const char* model, const char* architecture, const std::vector<const char*>& keys) {
    return changed(model, [&](json& document) {
      document["architectures"] = {architecture};
      document["num_attention_heads"] = 32;
      document["hidden_size"] = 2048;
      for (const char* key : keys) document.erase(key);
    });
  };
  EXPECT_EQ(without("Qwen3-0.6B", "Qwen3ForCausalLM", {"head_dim"}).head_dim, 128);
  EXPECT_EQ(without("Qwen3-0.6B", "Qwen3ForCausalLM", {"num_key_value_heads"}).num_kv_heads, 32);
  EXPECT_EQ(without("Qwen3-0.6B", "Qwen2ForCausalLM", {"num_key_value_heads", "head_dim"}).head_dim, 64);
  EXPECT_EQ(without("Llama-3.2-1B", "MistralForCausalLM", {"num_key_value_heads"}).num_kv_heads, 8);
  EXPECT_EQ(without("Llama-3.2-1B", "LlamaForCausalLM", {"num_key_value_heads"}).num_kv_heads, 32);
  EXPECT_EQ(without("Llama-3.2-1B", "LlamaForCausalLM", {"max_position_embeddings"}).max_position_embeddings, 2048);
  EXPECT_EQ(without("Llama-3.2-1B", "MistralForCausalLM", {"max_position_embeddings"}).max_position_embeddings, 131072);
  EXPECT_EQ(changed("Qwen3-0.6B", [](json& document) { document["head_dim"] = nullptr; }).head_dim, 64);
  EXPECT_EQ(changed("Qwen3-0.6B", [](json& document) { document["num_key_value_heads"] = nullptr; }).num_kv_heads, 16);
  EXPECT_THAT(qwen_error_without("num_key_value_heads"),
              HasSubstr("has 16 of num_attention_heads, want a multiple of num_key_value_heads, which is 32 where the "
                        "file does not say"));
}

// Up to its window's length, attention with a sliding window is full attention, so that it only bounds a sequence.
TEST(ConfigTest, SlidingWindows) {
  EXPECT_EQ(changed("Llama-3.2-1B", [](json& document) { document["sliding_window"] = 4096; }).longest_sequence(),
            4096);
  EXPECT_EQ(changed("Llama-3.2-1B", [](json& document) { document["sliding_window"] = 1 << 30; }).longest_sequence(),
            131072);
  auto qwen = [](const json& keys) {
    return changed("Qwen3-0.6B", [&](json& document) { document.update(keys); }).sliding_window;
  };
  EXPECT_FALSE(qwen({{"sliding_window", 512}}));
  EXPECT_FALSE(qwen({{"sliding_window", 512}, {"use_sliding_window", true}, {"max_window_layers", 28}}));
  EXPECT_EQ(qwen({{"sliding_window", 512}, {"use_sliding_window", true}, {"max_window_layers", 27}}), 512);
  EXPECT_EQ(qwen({{"use_sliding_window", true}, {"max_window_layers", 0}}), std::nullopt) << "the file says null";
  EXPECT_EQ(qwen({{"sliding_window", 512}, {"use_sliding_window", true}, {"layer_types", {"sliding_attention"}}}), 512);
  EXPECT_FALSE(qwen({{"sliding_window", 512}, {"use_sliding_window", true}, {"layer_types", {"full_attention"}}}));
}

TEST(ConfigTest, Biases) {
  const ModelConfig llama = changed("Llama-3.2-1B", [](json& document) {
    document["attention_bias"] = true;
    document["mlp_bias"] = true;
  });
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelConfig qwen = changed("Qwen3-0.6B", [](json& document) { document["attention_bias"] = true; });
  EXPECT_TRUE(qwen.qkv_bias && qwen.o_bias);
  EXPECT_FALSE(qwen.mlp_bias);
  const ModelConfig mistral = changed("Llama-3.2-1B", [](json& document) {
    document["architectures"] = {"MistralForCausalLM"};
    document["attention_bias"] = true;  // its layers have none whatever the file says
    document.erase("rope_scaling");
  });
  EXPECT_FALSE(mistral.has_biases());
}

// A multimodal model's file, with the published Qwen3-0.6B inside.
json wrapped(const std::string& architecture, const json& changes = json::object()) {
  json text = shape("Qwen3-0.6B");
  text.erase("architectures");
  text.erase("tie_word_embeddings");
  text.update(changes);
  return {{"architectures", {architecture}},
          {"model_type", "some_vl"},
          {"text_config", text},
          {"vision_config", json::object()}};
}

TEST(ConfigTest, TextModelOfAMultimodalOne) {
  auto read = [](const json& document) { return config_parse(document.dump(), "config.json"); };
  const ModelConfig config = read(wrapped("InternVLForConditionalGeneration"));
  EXPECT_EQ(config.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config.num_layers, 28);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_TRUE(config.tie_word_embeddings) << "unless the weights say otherwise";
  json document = wrapped("InternVLForConditionalGeneration", {{"eos_token_id", nullptr}, {"torch_dtype", nullptr}});
  document["eos_token_id"] = 5;
  document["dtype"] = "float16";
  document["tie_word_embeddings"] = false;
  EXPECT_THAT(read(document).eos_token_ids, ElementsAre(5));
  EXPECT_EQ(read(document).dtype, DType::f16);
  EXPECT_FALSE(read(document).tie_word_embeddings);

  EXPECT_THAT(user_error([&] {
                read(wrapped("Gemma3ForConditionalGeneration", {{"model_type", "gemma3_text"}}));
              }),
              HasSubstr("config.json: \"text_config.model_type\" is \"gemma3_text\" (of "
                        "Gemma3ForConditionalGeneration), which is not supported; supported are llama, mistral, "));
  EXPECT_THAT(user_error([&] { read(wrapped("MambaForCausalLM")); }), HasSubstr("\"architectures[0]\" is \"MambaFor"));
  EXPECT_THAT(user_error([&] {
                read(wrapped("AForConditionalGeneration", {{"hidden_size", -1}}));
              }),
              HasSubstr("\"text_config.hidden_size\" is -1"));
}

// What is default is left out of such a file: this is all that LLaVA 1.5 says of its text model.
TEST(ConfigTest, TextModelThatSaysLittle) {
  const ModelConfig config = config_parse(
      R"({"architectures": ["LlavaForConditionalGeneration"], "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5",
          "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "model_type": "llama",
          "rms_norm_eps": 1e-05, "torch_dtype": "float16", "vocab_size": 32064}, "vision_config": {}})",
      "config.json");
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.intermediate_size, 11008);
  EXPECT_EQ(config.num_layers, 32);
  EXPECT_EQ(config.num_kv_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.vocab_size, 32064);
  EXPECT_EQ(config.dtype, DType::f16);
}

// Qwen's vision models: flat as they were first published, and nested as newer exports are. Of text every axis of their
// RoPE is the position.
TEST(ConfigTest, VisionModelsOfQwen) {
  auto flat = [](const char* architecture) {
    return changed("Qwen3-0.6B", [&](json& document) {
      document["architectures"] = {architecture};
      document["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
      document.erase("head_dim");
    });
  };
  for (const char* name : {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"}) {
    const ModelConfig config = flat(name);
    EXPECT_TRUE(config.qkv_bias) << name;
    EXPECT_FALSE(config.rope_scaling) << name;
    EXPECT_EQ(config.head_dim, 64) << name;
  }
  EXPECT_TRUE(flat("Qwen3VLForConditionalGeneration").qk_norm);
  const ModelConfig nested = config_parse(
      wrapped("Qwen2_5_VLForConditionalGeneration", {{"model_type", "qwen2_5_vl_text"}, {"rope_theta", nullptr}})
          .dump(),
      "config.json");
  EXPECT_TRUE(nested.qkv_bias);
  EXPECT_EQ(nested.rope_theta, 1e6);
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "mrope"}}), HasSubstr("is \"mrope\", supported are"));
}

TEST(ConfigTest, RopeScalings) {
  auto rope = [](const json& scaling, const json& more = json::object()) {
    return changed("Qwen3-0.6B", [&](json& document) {
      document["rope_scaling"] = scaling;
      document.update(more);
    });
  };
  const ModelConfig yarn = rope({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}});
  EXPECT_EQ(yarn.rope_scaling->kind, RopeKind::yarn);
  EXPECT_EQ(yarn.rope_scaling->original_max_position, 32768);
  EXPECT_EQ(yarn.rope_scaling->beta_fast, 32);
  EXPECT_EQ(yarn.rope_scaling->beta_slow, 1);
  EXPECT_TRUE(yarn.rope_scaling->truncate);
  EXPECT_NEAR(yarn.rope_scaling->attention_factor, 1.1386294361119891, 1e-15);
  EXPECT_EQ(yarn.longest_sequence(), 131072);

  EXPECT_EQ(rope({{"type", "yarn"}, {"factor", 2}, {"attention_factor", 0.5}}).rope_scaling->attention_factor, 0.5);
  EXPECT_EQ(rope({{"type", "yarn"}, {"factor", 2}}).rope_scaling->original_max_position, 40960)
      << "that of the checkpoint";
  EXPECT_EQ(
      rope({{"type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 10240}}).rope_scaling->factor,
      4)
      << "the ratio of the contexts";
  EXPECT_EQ(rope({{"type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 99}},
                 {{"original_max_position_embeddings", 77}})
                .rope_scaling->original_max_position,
            77);

  const ModelConfig linear = rope({{"type", "linear"}, {"factor", 2.5}});
  EXPECT_EQ(linear.rope_scaling->kind, RopeKind::linear);
  EXPECT_EQ(linear.longest_sequence(), 102400);
  const ModelConfig dynamic = rope({{"rope_type", "dynamic"}, {"factor", 2}});
  EXPECT_EQ(dynamic.rope_scaling->kind, RopeKind::dynamic);
  EXPECT_EQ(dynamic.longest_sequence(), 81920);
}

TEST(ConfigTest, RopeScalingBesideRopeParameters) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  json same = yarn;
  same["rope_theta"] = 1000000;
  same["attention_factor"] = nullptr;
  auto read = [](const json& classic, const json& modern) {
    return changed("Qwen3-0.6B", [&](json& document) {
      document["rope_scaling"] = classic;
      document["rope_parameters"] = modern;
    });
  };
  EXPECT_EQ(read(yarn, same).rope_scaling->factor, 4);
  EXPECT_EQ(read(nullptr, same).rope_scaling->factor, 4);
  EXPECT_EQ(read(json::object(), same).rope_scaling->factor, 4);
  EXPECT_FALSE(read({{"type", "linear"}, {"factor", 1}}, {{"rope_type", "default"}, {"rope_theta", 1e6}}).rope_scaling);
  same["factor"] = 8;
  EXPECT_THAT(user_error([&] { read(yarn, same); }),
              HasSubstr("\"rope_parameters\" stands beside \"rope_scaling\", which says something else"));
}

TEST(ConfigTest, RefusesUnknownRope) {
  EXPECT_THAT(
      qwen_error("rope_scaling", {{"rope_type", "longrope"}, {"factor", 4}}),
      HasSubstr("\"rope_scaling.rope_type\" is \"longrope\", supported are \"default\", \"linear\", \"dynamic\", "
                "\"yarn\" and \"llama3\""));
  EXPECT_THAT(qwen_error("rope_scaling", {{"rope_type", "llama3"}}), HasSubstr("\"rope_scaling\" lacks \"factor\""));
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "linear"}}), HasSubstr("\"rope_scaling\" lacks \"factor\""));
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "linear"}, {"factor", 0}}),
              HasSubstr("\"rope_scaling.factor\" is 0"));
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "dynamic"}, {"factor", 0.5}}),
              HasSubstr("\"rope_scaling.factor\" is 0.5, want 1 to"));
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "yarn"}, {"factor", 4}, {"attention_factor", -1}}),
              HasSubstr("\"rope_scaling.attention_factor\" is -1, want 0 to"));
  EXPECT_THAT(qwen_error("rope_scaling", "yarn"), HasSubstr("\"rope_scaling\" is \"yarn\", want an object"));
  EXPECT_THAT(qwen_error("partial_rotary_factor", 0.5), HasSubstr("rotating a part of each head"));
  EXPECT_THAT(qwen_error("rope_scaling", {{"type", "default"}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("\"rope_scaling.partial_rotary_factor\" is 0.5: rotating a part of each head"));
  EXPECT_THAT(qwen_error("rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}),
              HasSubstr("gives one kind of layer its own RoPE"));
  EXPECT_THAT(qwen_error("rope_parameters", {{"rope_theta", 5}}), HasSubstr("but another \"rope_theta\" is 1000000"));
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
    if (std::string(key) == "num_key_value_heads" || std::string(key) == "max_position_embeddings") continue;
    EXPECT_THAT(qwen_error_without(key), HasSubstr(std::string("lacks \"") + key + "\"")) << key;
  }
  EXPECT_THAT(qwen_error("num_key_value_heads", 3), HasSubstr("has 16 of num_attention_heads, want a multiple of"));
  EXPECT_THAT(qwen_error("head_dim", 127), HasSubstr("has heads of 127, want an even number"));
  EXPECT_THAT(user_error([] {
                changed("Llama-3.2-1B", [](json& document) {
                  document.erase("head_dim");
                  document["hidden_size"] = 2049;
                });
              }),
              HasSubstr("has a hidden_size of 2049, want a multiple of num_attention_heads, which is 32"));
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
