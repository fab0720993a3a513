#include "megalith/model/architecture.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "megalith/base/error.h"

namespace megalith {

namespace {

constexpr Architecture kArchitectures[] = {
    // Llama 1 to 3 (https://arxiv.org/abs/2407.21783), and the many models of that shape.
    {.name = "LlamaForCausalLM",
     .model_type = "llama",
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .vocab_size = 32000,
     .intermediate_size = 11008,
     .max_position_embeddings = 2048},
    // Mistral (https://arxiv.org/abs/2310.06825).
    {.name = "MistralForCausalLM",
     .model_type = "mistral",
     .vocab_size = 32000,
     .intermediate_size = 14336,
     .num_kv_heads = 8,
     .max_position_embeddings = 131072,
     .sliding_window = 4096},
    // Qwen2 and Qwen2.5 (https://arxiv.org/abs/2407.10671).
    {.name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .qkv_bias = true,
     .reads_window_switch = true,
     .vocab_size = 151936,
     .intermediate_size = 22016,
     .num_kv_heads = 32,
     .max_position_embeddings = 32768,
     .sliding_window = 4096,
     .max_window_layers = 28},
    // Qwen3 (https://arxiv.org/abs/2505.09388).
    {.name = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .qk_norm = true,
     .reads_attention_bias = true,
     .reads_window_switch = true,
     .vocab_size = 151936,
     .intermediate_size = 22016,
     .num_kv_heads = 32,
     .head_dim = 128,
     .max_position_embeddings = 32768,
     .sliding_window = 4096,
     .max_window_layers = 28},
    // The text models of Qwen's vision models. Older folders have one flat config.json, newer ones a "text_config".
    {.name = "Qwen2VLForConditionalGeneration",
     .model_type = "qwen2_vl_text",
     .qkv_bias = true,
     .reads_window_switch = true,
     .allows_mrope = true,
     .vocab_size = 152064,
     .hidden_size = 8192,
     .intermediate_size = 29568,
     .num_layers = 80,
     .num_heads = 64,
     .num_kv_heads = 8,
     .max_position_embeddings = 32768,
     .sliding_window = 4096,
     .max_window_layers = 80,
     .rms_norm_eps = 1e-5,
     .rope_theta = 1e6},
    {.name = "Qwen2_5_VLForConditionalGeneration",
     .model_type = "qwen2_5_vl_text",
     .qkv_bias = true,
     .reads_window_switch = true,
     .allows_mrope = true,
     .vocab_size = 152064,
     .hidden_size = 8192,
     .intermediate_size = 29568,
     .num_layers = 80,
     .num_heads = 64,
     .num_kv_heads = 8,
     .max_position_embeddings = 32768,
     .sliding_window = 4096,
     .max_window_layers = 80,
     .rms_norm_eps = 1e-5,
     .rope_theta = 1e6},
    {.name = "Qwen3VLForConditionalGeneration",
     .model_type = "qwen3_vl_text",
     .qk_norm = true,
     .reads_attention_bias = true,
     .reads_window_switch = true,
     .allows_mrope = true,
     .vocab_size = 151936,
     .intermediate_size = 22016,
     .num_kv_heads = 32,
     .head_dim = 128,
     .max_position_embeddings = 128000,
     .rope_theta = 5e5},
};

std::vector<Architecture>& all() {
  static std::vector<Architecture> rows(std::begin(kArchitectures), std::end(kArchitectures));
  return rows;
}

}  // namespace

std::span<const Architecture> architectures() { return all(); }

void add_architecture(const Architecture& architecture) {
  MEGALITH_CHECK(!architecture_of_name(architecture.name) && !architecture_of_type(architecture.model_type),
                 "there is an architecture \"{}\" (model_type \"{}\") already: take another name", architecture.name,
                 architecture.model_type);
  all().push_back(architecture);
}

const Architecture* architecture_of_name(const std::string& name) {
  constexpr std::string_view kWithHead = "ForCausalLM";
  for (const Architecture& row : all()) {
    std::string base = row.name;
    if (base.ends_with(kWithHead)) base.replace(base.size() - kWithHead.size(), kWithHead.size(), "Model");
    if (name == row.name || name == base) return &row;
  }
  return nullptr;
}

const Architecture* architecture_of_type(const std::string& model_type) {
  const auto row = std::ranges::find_if(all(), [&](const Architecture& one) { return model_type == one.model_type; });
  return row == all().end() ? nullptr : &*row;
}

}  // namespace megalith
