// The architectures that Megalith runs, one row each: what sets a decoder apart from its relatives, and what an absent
// key of config.json stands for, which is the default of the model's class in transformers. All share the parts in
// decoder.cpp, so that a new relative is a row here, and whatever it has that no other has.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace megalith {

class DecoderBuilder;

/// What a layer makes of the residual stream `x`, and gives back: tensors of the graph that `builder` makes.
using Block = int (*)(DecoderBuilder& builder, int64_t layer, int x);

struct Architecture {
  const char* name;        // as "architectures" of config.json has it
  const char* model_type;  // as "model_type" of config.json, or of the "text_config" in it, has it

  bool qk_norm = false;               // RMSNorm over each head of q and k, before RoPE
  bool qkv_bias = false;              // biases of q, k and v whatever config.json says
  bool reads_attention_bias = false;  // "attention_bias": biases of q, k, v and o
  bool reads_mlp_bias = false;        // "mlp_bias": biases of gate, up and down
  bool reads_window_switch = false;   // a "sliding_window" counts only if "use_sliding_window" is true
  bool allows_mrope = false;          // RoPE over several axes, each of which is the position where there is only text

  int64_t vocab_size;
  int64_t hidden_size = 4096;
  int64_t intermediate_size;
  int64_t num_layers = 32;
  int64_t num_heads = 32;
  int64_t num_kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;      // 0: hidden_size / num_heads
  int64_t max_position_embeddings;
  int64_t sliding_window = 0;     // 0: none
  int64_t max_window_layers = 0;  // layers before this one have no window
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;

  Block block = nullptr;  // nothing: attention, then the MLP, each behind its norm and added to the stream
};

std::span<const Architecture> architectures();

/// Adds one that only this program knows: its folders are read, compiled and run as all others. Before anything is read.
/// Its names must live as long as the program. UserError if there is one of that name.
void add_architecture(const Architecture& architecture);

/// The row of a name in "architectures", nullptr if there is none. A checkpoint that was saved without its output
/// projection has the same name with "Model" in place of "ForCausalLM".
const Architecture* architecture_of_name(const std::string& name);
/// The row of a "model_type".
const Architecture* architecture_of_type(const std::string& model_type);

}  // namespace megalith
