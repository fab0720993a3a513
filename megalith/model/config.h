// What config.json of a Hugging Face folder says, checked, in one vocabulary; generation_config.h has its neighbour.
//
// A configuration is read only if Megalith computes exactly what it asks for. Whatever would change the result and is
// not supported (another activation, quantized weights, an unknown RoPE) is refused by its name; keys that change
// nothing are ignored. Both spellings are read: the classic `rope_theta` + `rope_scaling` and `torch_dtype`, and the
// `rope_parameters` and `dtype` of transformers 5. Of a multimodal model it is the text model that is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/model/generation_config.h"
#include "megalith/model/rope_scaling.h"

namespace megalith {

struct ModelConfig {
  std::string name;          // the folder's own: "storyteller"; names the graph and its artifacts
  std::string architecture;  // "Qwen3ForCausalLM", "LlamaForCausalLM", ...
  int64_t vocab_size = 0;    // V: rows of the embedding; may exceed the tokenizer's
  int64_t hidden_size = 0;   // H
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;  // query heads; a multiple of num_kv_heads
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // even; num_heads * head_dim need not be hidden_size
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;
  bool tie_word_embeddings = false;       // the output projection is the embedding
  bool qk_norm = false;                   // RMSNorm over each head of q and k, before RoPE (Qwen3)
  bool qkv_bias = false;                  // added to q, k and v after their projections (Qwen2)
  bool o_bias = false;                    // added after the projection that closes attention
  bool mlp_bias = false;                  // added to gate, up and down
  std::optional<int64_t> sliding_window;  // positions that attention looks back on, its own included (Mistral)
  DType dtype = DType::bf16;              // of the checkpoint; bf16 if the file does not say
  std::vector<int> eos_token_ids;
  std::optional<int> bos_token_id;

  bool has_biases() const { return qkv_bias || o_bias || mlp_bias; }
  /// Tokens that a sequence may have: max_position_embeddings, or the original context times the factor where RoPE is
  /// scaled to reach farther; and no more than the sliding window, up to which attention is full attention.
  int64_t longest_sequence() const;
};

/// Reads `folder`/config.json; UserError naming file, key, what was found, what was wanted.
ModelConfig config_read(const std::string& folder);
/// The same from the file's text; `name` stands for the file in messages.
ModelConfig config_parse(std::string_view json, const std::string& name);

}  // namespace megalith
