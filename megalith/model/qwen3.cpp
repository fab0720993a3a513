#include "megalith/model/decoder.h"

namespace megalith {

/// Qwen3 (https://arxiv.org/abs/2505.09388): grouped-query attention with q/k norm, SwiGLU, no biases.
graph::Graph build_qwen3(const ModelConfig& config, const DecoderOptions& options) {
  DecoderBuilder model(config, options);
  graph::TensorId x = model.embed();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    x = model.attention(layer, x);  // q/k norm: config.qk_norm
    x = model.mlp(layer, x);
  }
  model.sample(x);
  return model.finish();
}

}  // namespace megalith
