#include "megalith/model/decoder.h"

namespace megalith {

/// Llama 3.x (https://arxiv.org/abs/2407.21783): grouped-query attention without q/k norm, SwiGLU, scaled RoPE.
graph::Graph build_llama(const ModelConfig& config, const DecoderOptions& options) {
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
