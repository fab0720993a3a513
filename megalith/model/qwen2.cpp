#include "megalith/model/decoder.h"

namespace megalith {

/// Qwen2 and Qwen2.5 (https://arxiv.org/abs/2407.10671): grouped-query attention with biases on q, k and v, SwiGLU.
graph::Graph build_qwen2(const ModelConfig& config, const DecoderOptions& options) {
  DecoderBuilder model(config, options);
  graph::TensorId x = model.embed();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    x = model.attention(layer, x);
    x = model.mlp(layer, x);
  }
  model.sample(x);
  return model.finish();
}

}  // namespace megalith
