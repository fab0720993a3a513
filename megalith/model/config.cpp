#include "megalith/model/config.h"

#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/json.h"
#include "megalith/model/model_folder.h"

namespace megalith {

namespace {

constexpr size_t kMostConfigBytes = 16 << 20;

// Far above every published model, and low enough that no product of two of them (elements of a weight, bytes of a
// cache row) comes near 2^63.
constexpr int64_t kMostVocab = 1 << 24;
constexpr int64_t kMostWidth = 1 << 22;
constexpr int64_t kMostLayers = 4096;
constexpr int64_t kMostHeads = 4096;
constexpr int64_t kMostHeadDim = 4096;
constexpr int64_t kMostPositions = 1 << 26;

struct Architecture {
  const char* name;
  bool qk_norm;
  bool qkv_bias;
  // transformers' class has its own default for this one, which is not that of Llama; every published file has it.
  bool kv_heads_required;
  bool head_dim_required;  // the same
  // What an absent "sliding_window" stands for, in positions; 0: the architecture has none.
  int64_t default_window;
};
constexpr Architecture kArchitectures[] = {{"LlamaForCausalLM", false, false, false, false, 0},
                                           {"MistralForCausalLM", false, false, true, false, 4096},
                                           {"Qwen2ForCausalLM", false, true, true, false, 0},
                                           {"Qwen3ForCausalLM", true, false, true, true, 0}};

const Architecture& read_architecture(const JsonValue& root) {
  const std::vector<JsonValue> names = root.at("architectures").elements();
  if (names.size() != 1) root.at("architectures").fail(fmt::format("has {} entries, want one", names.size()));
  std::vector<std::string> known;
  for (const Architecture& architecture : kArchitectures) {
    if (names[0].string() == architecture.name) return architecture;
    known.emplace_back(architecture.name);
  }
  names[0].fail(
      fmt::format("is {}, which is not supported; supported are {}", names[0].excerpt(), fmt::join(known, ", ")));
}

// Refuses `key` when it is true.
void refuse_flag(const JsonValue& root, const char* key, const char* what) {
  if (auto flag = root.find(key); flag && flag->boolean())
    flag->fail(fmt::format("is true: {} is not supported", what));
}

void refuse_unsupported(const JsonValue& root, const Architecture& architecture) {
  if (auto quantization = root.find("quantization_config")) {
    auto method = quantization->find("quant_method");
    quantization->fail(fmt::format("asks for quantized weights ({}), which are not supported: take the bf16 checkpoint",
                                   method ? method->excerpt() : "unknown method"));
  }
  if (auto activation = root.find("hidden_act"); activation && activation->string() != "silu")
    activation->fail(fmt::format("is {}, supported is \"silu\"", activation->excerpt()));
  refuse_flag(root, "attention_bias", "a bias in attention projections");
  refuse_flag(root, "mlp_bias", "a bias in the MLP");
  refuse_flag(root, "use_mrope", "RoPE over several axes");
  // Qwen's files carry a window and a switch that says whether it is used; files without the switch use the window.
  if (auto flag = root.find("use_sliding_window")) {
    if (flag->boolean()) flag->fail("is true: sliding windows are not supported");
  } else if (auto window = root.find("sliding_window"); window && architecture.default_window == 0) {
    window->fail(fmt::format("is {}: sliding windows are not supported", window->excerpt()));
  }
  if (auto layers = root.find("layer_types"))
    layers->each_element([](const JsonValue& layer) {
      if (layer.string() != "full_attention")
        layer.fail(fmt::format("is {}, supported is \"full_attention\"", layer.excerpt()));
    });
}

// A null says that there is none; that is not the same as an absent key.
std::optional<int64_t> read_window(const JsonValue& root, const Architecture& architecture) {
  if (architecture.default_window == 0) return std::nullopt;
  if (!root.has("sliding_window")) return architecture.default_window;
  if (auto window = root.find("sliding_window")) return window->integer(1, kMostPositions);
  return std::nullopt;
}

RopeScaling read_llama3_scaling(const JsonValue& rope) {
  RopeScaling scaling;
  scaling.factor = rope.at("factor").number(1, 1e6);
  scaling.low_freq_factor = rope.at("low_freq_factor").number(1e-6, 1e6);
  scaling.high_freq_factor = rope.at("high_freq_factor").number(1e-6, 1e6);
  scaling.original_max_position = rope.at("original_max_position_embeddings").integer(1, kMostPositions);
  if (scaling.low_freq_factor >= scaling.high_freq_factor)
    rope.fail(fmt::format("has low_freq_factor {} and high_freq_factor {}, want the low one smaller",
                          scaling.low_freq_factor, scaling.high_freq_factor));
  return scaling;
}

std::optional<RopeScaling> read_rope_scaling(const JsonValue& rope) {
  auto type = rope.find("rope_type");
  if (!type) type = rope.find("type");  // the spelling before transformers 4.43
  if (auto partial = rope.find("partial_rotary_factor"); partial && partial->number(0, 1) != 1)
    partial->fail(fmt::format("is {}: rotating a part of each head is not supported", partial->excerpt()));
  if (!type || type->string() == "default") return std::nullopt;
  if (type->string() == "llama3") return read_llama3_scaling(rope);
  type->fail(fmt::format("is {}, supported are \"default\" and \"llama3\"", type->excerpt()));
}

void read_rope(ModelConfig& config, const JsonValue& root) {
  if (auto partial = root.find("partial_rotary_factor"); partial && partial->number(0, 1) != 1)
    partial->fail(fmt::format("is {}: rotating a part of each head is not supported", partial->excerpt()));
  const auto classic_theta = root.find("rope_theta");
  if (classic_theta) config.rope_theta = classic_theta->number(1, 1e15);
  if (auto scaling = root.find("rope_scaling")) config.rope_scaling = read_rope_scaling(*scaling);

  const auto rope = root.find("rope_parameters");
  if (!rope) return;
  rope->each_member([](const std::string&, const JsonValue& member) {
    if (member.is_object()) member.fail("gives one kind of layer its own RoPE, which is not supported");
  });
  if (root.find("rope_scaling")) rope->fail("stands beside \"rope_scaling\": remove one of them");
  config.rope_scaling = read_rope_scaling(*rope);
  if (auto theta = rope->find("rope_theta")) {
    const double value = theta->number(1, 1e15);
    if (classic_theta && value != config.rope_theta)
      theta->fail(
          fmt::format("is {}, but the top-level \"rope_theta\" is {}: remove one of them", value, config.rope_theta));
    config.rope_theta = value;
  }
}

DType read_dtype(const JsonValue& root) {
  auto name = root.find("dtype");
  if (!name) name = root.find("torch_dtype");
  if (!name) return DType::bf16;
  std::string_view text = name->string();
  if (text.starts_with("torch.")) text.remove_prefix(6);
  if (text == "bfloat16") return DType::bf16;
  if (text == "float16") return DType::f16;
  if (text == "float32") return DType::f32;
  name->fail(fmt::format("is {}, supported are \"bfloat16\", \"float16\" and \"float32\"", name->excerpt()));
}

void read_heads(ModelConfig& config, const JsonValue& root, const Architecture& architecture) {
  config.num_heads = root.at("num_attention_heads").integer(1, kMostHeads);
  const auto kv_heads =
      architecture.kv_heads_required ? std::optional(root.at("num_key_value_heads")) : root.find("num_key_value_heads");
  config.num_kv_heads = kv_heads ? kv_heads->integer(1, kMostHeads) : config.num_heads;
  if (config.num_heads % config.num_kv_heads != 0)
    root.at("num_attention_heads")
        .fail(fmt::format("is {}, want a multiple of num_key_value_heads, which is {}", config.num_heads,
                          config.num_kv_heads));

  const auto head_dim = architecture.head_dim_required ? std::optional(root.at("head_dim")) : root.find("head_dim");
  if (head_dim) {
    config.head_dim = head_dim->integer(2, kMostHeadDim);
  } else {
    if (config.hidden_size % config.num_heads != 0)
      root.at("hidden_size")
          .fail(fmt::format("is {}, want a multiple of num_attention_heads, which is {} (there is no \"head_dim\")",
                            config.hidden_size, config.num_heads));
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMostHeadDim)
    root.fail(
        fmt::format("has heads of {}, want an even number up to {}: RoPE turns pairs", config.head_dim, kMostHeadDim));
}

ModelConfig read_config(const JsonValue& root) {
  const Architecture& architecture = read_architecture(root);
  refuse_unsupported(root, architecture);

  ModelConfig config;
  config.architecture = architecture.name;
  config.qk_norm = architecture.qk_norm;
  config.qkv_bias = architecture.qkv_bias;
  config.sliding_window = read_window(root, architecture);
  config.vocab_size = root.at("vocab_size").integer(1, kMostVocab);
  config.hidden_size = root.at("hidden_size").integer(1, kMostWidth);
  config.intermediate_size = root.at("intermediate_size").integer(1, kMostWidth);
  config.num_layers = root.at("num_hidden_layers").integer(1, kMostLayers);
  config.max_position_embeddings = root.at("max_position_embeddings").integer(1, kMostPositions);
  read_heads(config, root, architecture);
  read_rope(config, root);
  if (auto eps = root.find("rms_norm_eps")) config.rms_norm_eps = eps->number(1e-12, 1);
  if (auto tied = root.find("tie_word_embeddings")) config.tie_word_embeddings = tied->boolean();
  config.dtype = read_dtype(root);
  config.eos_token_ids = read_token_ids(root, "eos_token_id", config.vocab_size);
  config.bos_token_id = read_token_id(root, "bos_token_id", config.vocab_size);
  return config;
}

}  // namespace

ModelConfig config_read(const std::string& folder) {
  const std::string path = folder + "/config.json";
  check_model_folder(folder);
  ModelConfig config = read_config(JsonFile::read(path, kMostConfigBytes).root());
  config.name = std::filesystem::weakly_canonical(folder).filename();
  return config;
}

ModelConfig config_parse(std::string_view json, const std::string& name) {
  return read_config(JsonFile::parse(json, name).root());
}

}  // namespace megalith
