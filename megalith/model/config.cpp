#include "megalith/model/config.h"

#include <algorithm>
#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/architecture.h"
#include "megalith/model/json.h"
#include "megalith/model/model_folder.h"

namespace megalith {

namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;

// Far above every published model, and low enough that no product of two of them (elements of a weight, bytes of a
// cache row) comes near 2^63.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxWidth = 1 << 22;
constexpr int64_t kMaxLayers = 1024;  // a plan is made and proved in seconds
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxPositions = 1 << 26;

// The text model of a folder: which architecture it has, and the object that describes it.
struct TextModel {
  const Architecture& architecture;
  JsonValue config;
  bool is_nested;  // inside a multimodal model's config.json, which leaves out what is default
};

std::string known_types() {
  std::vector<std::string> types;
  for (const Architecture& row : architectures()) types.emplace_back(row.model_type);
  return fmt::format("{}", fmt::join(types, ", "));
}

const Architecture& read_type(const JsonValue& object, const std::string& of) {
  const JsonValue type = object.at("model_type");
  if (const Architecture* row = architecture_of_type(type.string())) return *row;
  type.fail(fmt::format("is {}{}, which is not supported; supported are {}", type.excerpt(), of, known_types()));
}

std::optional<JsonValue> architecture_name(const JsonValue& root) {
  const auto list = root.find("architectures");
  if (!list || list->size() == 0) return std::nullopt;
  const std::vector<JsonValue> names = list->elements();
  if (names.size() != 1) list->fail(fmt::format("has {} entries, want one", names.size()));
  names[0].string();
  return names[0];
}

// With and without an output projection.
bool is_multimodal(const std::string& name, const Architecture* row) {
  return name.ends_with("ForConditionalGeneration") || (name.ends_with("Model") && !row);
}

TextModel find_text_model(const JsonValue& root) {
  const auto name = architecture_name(root);
  const auto text = root.find("text_config");
  const Architecture* const row = name ? architecture_of_name(name->string()) : nullptr;
  if (text && (!name || is_multimodal(name->string(), row)))
    return {read_type(*text, name ? fmt::format(" (of {})", name->string()) : ""), *text, true};
  if (!name) return {read_type(root, ""), root, false};
  if (row) return {*row, root, false};
  std::vector<std::string> known;
  for (const Architecture& other : architectures()) known.emplace_back(other.name);
  name->fail(fmt::format(
      "is {}, which is not supported; supported are {}, and multimodal models (...ForConditionalGeneration) whose "
      "\"text_config\" has one of the model types {}",
      name->excerpt(), fmt::join(known, ", "), known_types()));
}

void refuse_quantized(const JsonValue& object) {
  if (auto quantization = object.find("quantization_config")) {
    const auto method = quantization->is_object() ? quantization->find("quant_method") : std::nullopt;
    quantization->fail(fmt::format("asks for quantized weights ({}), which are not supported: take the bf16 checkpoint",
                                   method ? method->excerpt() : "unknown method"));
  }
}

void refuse_activation(const JsonValue& object) {
  if (auto activation = object.find("hidden_act");
      activation && activation->string() != "silu" && activation->string() != "swish")
    activation->fail(fmt::format("is {}, supported is \"silu\"", activation->excerpt()));
}

bool read_flag(const JsonValue& object, const char* key, bool usual = false) {
  const auto flag = object.find(key);
  return flag ? flag->boolean() : usual;
}

// Whether some layer looks back on the window only. Lists of layers come from newer files, "use_sliding_window" and
// "max_window_layers" from Qwen's. Classes whose attention has no window count as well: transformers' cache drops keys
// that lie outside "sliding_window", whatever the class.
bool uses_window(const JsonValue& text, const Architecture& architecture, int64_t num_layers) {
  // Of a Mistral model every layer has it.
  if (architecture.sliding_window > 0 && !architecture.reads_window_switch) return true;
  const bool is_on = read_flag(text, "use_sliding_window", !architecture.reads_window_switch);
  const auto types = text.find("layer_types");
  if (!types) {
    const auto first = text.find("max_window_layers");
    return is_on && (first ? first->integer(0, kMaxLayers) : architecture.max_window_layers) < num_layers;
  }
  bool is_used = false;
  types->each_element([&](const JsonValue& layer) {
    const std::string& type = layer.string();
    if (type == "full_attention") return;
    if (type != "sliding_attention")
      layer.fail(fmt::format("is {}, supported are \"full_attention\" and \"sliding_attention\"", layer.excerpt()));
    if (!is_on || !(text.find("sliding_window") || architecture.sliding_window > 0))
      layer.fail(fmt::format("is {}, but no \"sliding_window\" is in use", layer.excerpt()));
    is_used = true;
  });
  return is_used;
}

// A null says that there is none; that is not the same as an absent key.
std::optional<int64_t> read_window(const JsonValue& text, const Architecture& architecture, int64_t num_layers) {
  if (!uses_window(text, architecture, num_layers)) return std::nullopt;
  if (auto window = text.find("sliding_window")) return window->integer(1);
  if (text.has("sliding_window") || architecture.sliding_window == 0) return std::nullopt;
  return architecture.sliding_window;
}

DType read_dtype(const JsonValue& object, DType usual) {
  auto name = object.find("dtype");
  if (!name) name = object.find("torch_dtype");
  if (!name) return usual;
  std::string_view text = name->string();
  if (text.starts_with("torch.")) text.remove_prefix(6);
  if (text == "bfloat16") return DType::bf16;
  if (text == "float16") return DType::f16;
  if (text == "float32") return DType::f32;
  name->fail(fmt::format("is {}, supported are \"bfloat16\", \"float16\" and \"float32\"", name->excerpt()));
}

// An absent key stands for `absent`, a null for `null`; 0 is the same as no number.
int64_t read_size(const JsonValue& text, const char* key, int64_t most, int64_t absent, int64_t null) {
  if (auto value = text.find(key)) return value->integer(1, most);
  return text.has(key) ? null : absent;
}

void read_heads(ModelConfig& config, const JsonValue& text, const Architecture& architecture) {
  config.num_kv_heads =
      read_size(text, "num_key_value_heads", kMaxHeads,
                architecture.num_kv_heads > 0 ? architecture.num_kv_heads : config.num_heads, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0)
    text.fail(fmt::format("has {} of num_attention_heads, want a multiple of num_key_value_heads, which is {}{}",
                          config.num_heads, config.num_kv_heads,
                          text.has("num_key_value_heads") ? "" : " where the file does not say"));

  config.head_dim = read_size(text, "head_dim", kMaxHeadDim, architecture.head_dim, 0);
  if (config.head_dim == 0) {
    if (config.hidden_size % config.num_heads != 0)
      text.fail(
          fmt::format("has a hidden_size of {}, want a multiple of num_attention_heads, which is {} (there is no "
                      "\"head_dim\")",
                      config.hidden_size, config.num_heads));
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim)
    text.fail(
        fmt::format("has heads of {}, want an even number up to {}: RoPE turns pairs", config.head_dim, kMaxHeadDim));
}

// Multimodal models say it in one place or the other. Their classes differ in what it means that none does: then it is
// the weights that tell (weight_names.h).
bool read_tied(const JsonValue& root, const JsonValue& text, bool is_nested) {
  constexpr const char* kKey = "tie_word_embeddings";
  if (!root.find(kKey) && !text.find(kKey)) return is_nested;
  return read_flag(root, kKey) || read_flag(text, kKey);
}

ModelConfig read_config(const JsonValue& root) {
  const TextModel model = find_text_model(root);
  const auto& [architecture, text, is_nested] = model;
  refuse_quantized(root);
  refuse_quantized(text);
  refuse_activation(text);

  ModelConfig config;
  config.architecture = architecture.name;
  // Of a file of its own a size that is missing is a mistake.
  auto size = [&](const char* key, int64_t most, int64_t absent) {
    return model.is_nested && !model.config.has(key) ? absent : model.config.at(key).integer(1, most);
  };
  config.vocab_size = size("vocab_size", kMaxVocab, architecture.vocab_size);
  config.hidden_size = size("hidden_size", kMaxWidth, architecture.hidden_size);
  config.intermediate_size = size("intermediate_size", kMaxWidth, architecture.intermediate_size);
  config.num_layers = size("num_hidden_layers", kMaxLayers, architecture.num_layers);
  config.num_heads = size("num_attention_heads", kMaxHeads, architecture.num_heads);
  read_heads(config, text, architecture);
  const int64_t positions = architecture.max_position_embeddings;
  config.max_position_embeddings = read_size(text, "max_position_embeddings", kMaxPositions, positions, positions);
  config.sliding_window = read_window(text, architecture, config.num_layers);
  const RopeSettings rope = read_rope(text, architecture, config.max_position_embeddings);
  config.rope_theta = rope.theta;
  config.rope_scaling = rope.scaling;

  const auto eps = text.find("rms_norm_eps");
  config.rms_norm_eps = eps ? eps->number(0, 1) : architecture.rms_norm_eps;
  config.qk_norm = architecture.qk_norm;
  const bool attention_bias = architecture.reads_attention_bias && read_flag(text, "attention_bias");
  config.qkv_bias = architecture.qkv_bias || attention_bias;
  config.o_bias = attention_bias;
  config.mlp_bias = architecture.reads_mlp_bias && read_flag(text, "mlp_bias");
  config.tie_word_embeddings = read_tied(root, text, is_nested);
  config.dtype = read_dtype(text, read_dtype(root, DType::bf16));
  for (const JsonValue& object : {root, text}) {
    if (config.eos_token_ids.empty()) config.eos_token_ids = read_token_ids(object, "eos_token_id", config.vocab_size);
    if (!config.bos_token_id) config.bos_token_id = read_token_id(object, "bos_token_id", config.vocab_size);
  }
  return config;
}

}  // namespace

int64_t ModelConfig::longest_sequence() const {
  int64_t longest = max_position_embeddings;
  if (rope_scaling && rope_scaling->kind != RopeKind::llama3) {
    const double scaled = rope_scaling->factor * static_cast<double>(rope_scaling->original_max_position);
    longest = std::max(longest, static_cast<int64_t>(std::min(scaled, static_cast<double>(kMaxPositions))));
  }
  return sliding_window ? std::min(longest, *sliding_window) : longest;
}

ModelConfig config_read(const std::string& folder) {
  const std::string path = folder + "/config.json";
  check_model_folder(folder);
  ModelConfig config = read_config(JsonFile::read(path, kMaxConfigBytes).root());
  config.name = std::filesystem::weakly_canonical(folder).filename();
  return config;
}

ModelConfig config_parse(std::string_view json, const std::string& name) {
  return read_config(JsonFile::parse(json, name).root());
}

}  // namespace megalith
