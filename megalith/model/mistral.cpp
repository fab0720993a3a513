#include "megalith/model/decoder.h"

namespace megalith {

/// Mistral (https://arxiv.org/abs/2310.06825): grouped-query attention, SwiGLU. Its sliding window is full attention
/// for texts no longer than the window, and longer ones are refused (DecoderOptions::resolved).
graph::Graph build_mistral(const ModelConfig& config, const DecoderOptions& options) {
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
